# The backend's sources, by what compiles them; relative to this folder.
#
# Plain C++ that knows no CUDA: planners, tables, arithmetic.
set(TLM_CUDA_PLAN_SOURCES
  attention_plan.cc
  batch_ring_layout.cc
  batch_shape.cc
  block_layout.cc
  sampling_table.cc
  gemm_candidates.cc
  gemm_plan.cc
  matrix_layout.cc
  weight_rows.cc)
# C++ that calls the CUDA runtime API (cuda_runtime.h and nothing more of the toolkit).
set(TLM_CUDA_HOST_SOURCES
  arithmetic_check.cc
  batch_pipeline.cc
  batch_ring.cc
  cuda_device.cc
  cuda_ops.cc
  cuda_status.cc
  gemm.cc
  kernels/launch.cc
  upload_pipeline.cc
  weight_upload.cc)
# Kernels and the functions that start them.
set(TLM_CUDA_KERNEL_SOURCES
  kernels/add_norm.cu
  kernels/attention_mma.cu
  kernels/attention_simt.cu
  kernels/dequantise.cu
  kernels/embed.cu
  kernels/gemm_blocks.cu
  kernels/gemm_epilogue.cu
  kernels/gemm_mma.cu
  kernels/gemm_probe.cu
  kernels/gemm_simt.cu
  kernels/prepare_attention.cu
  kernels/sample_finish.cu
  kernels/sample_noise.cu
  kernels/sample_scan.cu)
# cuBLASLt, found at run time; the emulator goes without. The first needs the library's headers.
set(TLM_CUDA_LIBRARY_SOURCES
  cublaslt_abi.cc
  cublaslt_api.cc
  cublaslt_library.cc)

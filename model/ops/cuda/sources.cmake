# The backend's sources, by what compiles them; relative to this folder.
#
# Plain C++ that knows no CUDA: planners, tables, arithmetic.
set(TLM_CUDA_PLAN_SOURCES
  batch/attention_plan.cc
  batch/batch_ring_layout.cc
  batch/batch_shape.cc
  batch/sampling_table.cc
  gemm/gemm_candidates.cc
  gemm/gemm_plan.cc
  weights/block_layout.cc
  weights/matrix_layout.cc
  weights/weight_rows.cc)
# C++ that calls the CUDA runtime API (cuda_runtime.h and nothing more of the toolkit).
set(TLM_CUDA_HOST_SOURCES
  arithmetic_attention.cc
  arithmetic_check.cc
  arithmetic_products.cc
  cuda_ops.cc
  batch/batch_pipeline.cc
  batch/batch_ring.cc
  device/cuda_device.cc
  device/cuda_status.cc
  device/upload_pipeline.cc
  gemm/gemm.cc
  gemm/gemm_reserve.cc
  kernels/launch.cc
  weights/weight_upload.cc)
# Kernels and the functions that start them.
set(TLM_CUDA_KERNEL_SOURCES
  kernels/add_norm.cu
  kernels/embed.cu
  kernels/attention/attention_mma.cu
  kernels/attention/attention_simt.cu
  kernels/attention/prepare_attention.cu
  kernels/gemm/dequantise.cu
  kernels/gemm/gemm_blocks.cu
  kernels/gemm/gemm_epilogue.cu
  kernels/gemm/gemm_mma.cu
  kernels/gemm/gemm_probe.cu
  kernels/gemm/gemm_simt.cu
  kernels/sampling/sample_finish.cu
  kernels/sampling/sample_noise.cu
  kernels/sampling/sample_scan.cu)
# cuBLASLt, found at run time; the emulator goes without. The first needs the library's headers.
set(TLM_CUDA_LIBRARY_SOURCES
  gemm/cublaslt_abi.cc
  gemm/cublaslt_api.cc
  gemm/cublaslt_library.cc)

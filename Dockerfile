# Container images of tlm. They need no shell, no writable file and no capability.
#
#   docker build --target cpu -t tlm-server:cpu .
#   docker build --target cuda -t tlm-server:cuda .
#
# Bases are arguments, to be pinned by digest or taken from a private registry. A runtime base needs
# a glibc at least as new as the build base's; the CUDA one should have cuBLASLt 13 or 12.
# deploy/README.md describes how to run the images.
ARG CPU_BUILD_BASE=debian:bookworm-slim
ARG CPU_BASE=debian:bookworm-slim
ARG CUDA_BUILD_BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04
ARG CUDA_BASE=nvidia/cuda:13.0.1-runtime-ubuntu24.04

# ---- build: distribution packages, compile, stage -------------------------------------------
FROM ${CPU_BUILD_BASE} AS build-cpu
WORKDIR /src
COPY deploy/install_packages.sh deploy/
RUN ["deploy/install_packages.sh", "image-build"]
COPY . .
ARG JOBS=
ARG SOURCE_DATE_EPOCH=
RUN ["deploy/image/build.sh", "-DTLM_CUDA=OFF"]

FROM ${CUDA_BUILD_BASE} AS build-cuda
WORKDIR /src
COPY deploy/install_packages.sh deploy/
RUN ["deploy/install_packages.sh", "image-build"]
COPY . .
ARG JOBS=
ARG SOURCE_DATE_EPOCH=
RUN ["deploy/image/build.sh", "-DTLM_CUDA=ON"]

# ---- cuda: the GPU backend; without a GPU it serves on the CPU -------------------------------
FROM ${CUDA_BASE} AS cuda
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tlm-server" \
      org.opencontainers.image.description="gRPC server for transformer language models, CUDA" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# No set-user-ID or set-group-ID programs.
RUN ["find", "/", "-xdev", "-type", "f", "-perm", "/6000", "-exec", "chmod", "ug-s", "{}", "+"]
COPY --from=build-cuda /stage/ /
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 65532:65532
EXPOSE 50051 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=10m --retries=3 \
  CMD ["/usr/local/bin/tlm", "health", "--timeout=5"]
ENTRYPOINT ["/usr/local/bin/tlm-server"]
CMD ["--model=/usr/share/tlm/demo"]

# ---- cpu, the default ------------------------------------------------------------------------
FROM ${CPU_BASE} AS cpu
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tlm-server" \
      org.opencontainers.image.description="gRPC server for transformer language models, CPU" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# No set-user-ID or set-group-ID programs.
RUN ["find", "/", "-xdev", "-type", "f", "-perm", "/6000", "-exec", "chmod", "ug-s", "{}", "+"]
COPY --from=build-cpu /stage/ /
USER 65532:65532
EXPOSE 50051 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=6s --start-period=10m --retries=3 \
  CMD ["/usr/local/bin/tlm", "health", "--timeout=5"]
ENTRYPOINT ["/usr/local/bin/tlm-server"]
CMD ["--model=/usr/share/tlm/demo"]

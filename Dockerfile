# How to build, run and stop the image: docs/how-to/deploy.md
ARG BASE=docker.io/library/python:3.11-slim-bookworm

FROM ${BASE} AS build
# cpu or gpu: the extra of pyproject.toml, and with it the file of pinned versions
ARG EXTRA=cpu
# anything: install files only whose SHA-256 stands in hashes/, see there
ARG HASHES=""
# the caller's own index settings come as a secret; pip passes over the file where it is absent
ENV PIP_CONFIG_FILE=/run/secrets/pip.conf \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY pyproject.toml constraints.txt constraints-gpu.txt LICENSE NOTICE ./
COPY hashes ./hashes
# Installs the dependencies, the command and the metadata, no package of ours: this layer then
# outlives changes of the sources. PIP_CONSTRAINT pins what --constraint does and, up to pip 25.2,
# build requirements too. Without openvino-telemetry openvino reports its imports to nobody.
# Unchecked bytecode is valid whatever times the files are given later.
# hadolint ignore=DL3013
RUN --mount=type=secret,id=pip.conf \
    case "${EXTRA}" in \
      cpu) pins=constraints.txt ;; \
      gpu) pins=constraints-gpu.txt ;; \
      *) echo "EXTRA is '${EXTRA}'; it can be cpu or gpu" >&2; exit 1 ;; \
    esac \
    && touch README.md \
    && python -m venv --without-pip /opt/venv \
    && if [ -z "${HASHES}" ]; then \
         PIP_CONSTRAINT="${pins}" PIP_BUILD_CONSTRAINT=constraints.txt \
         pip --python /opt/venv/bin/python install --no-cache-dir --no-compile ".[${EXTRA},tracing,files,mcp,map]"; \
       else \
         python -m venv /opt/build \
         && /opt/build/bin/pip install --no-cache-dir --require-hashes --only-binary :all: \
            --requirement hashes/build.txt \
         && /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation \
            --wheel-dir /opt/build/own . \
         && pip --python /opt/venv/bin/python install --no-cache-dir --no-compile --require-hashes \
            --only-binary :all: --requirement "hashes/${EXTRA}.txt" \
         && pip --python /opt/venv/bin/python install --no-cache-dir --no-compile --no-deps \
            --no-index /opt/build/own/*.whl; \
       fi \
    && pip --python /opt/venv/bin/python uninstall --yes openvino-telemetry \
    && python -m compileall -q --invalidation-mode unchecked-hash /opt/venv/lib

# What is installed, for scanners. The tool stays in this stage.
RUN --mount=type=secret,id=pip.conf \
    python -m venv /opt/sbom \
    && if [ -z "${HASHES}" ]; then \
         /opt/sbom/bin/pip install --no-cache-dir cyclonedx-bom==7.5.0; \
       else \
         /opt/sbom/bin/pip install --no-cache-dir --require-hashes --only-binary :all: \
         --requirement hashes/sbom.txt; \
       fi \
    && /opt/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
       --output-file sbom.cdx.json /opt/venv/bin/python

WORKDIR /app
COPY docsplit ./docsplit
COPY features ./features
COPY service ./service
# readable to any user, whatever umask the clone was made under
RUN chmod -R a+rX,go-w . \
    && python -m compileall -q --invalidation-mode unchecked-hash \
         docsplit features service \
    && mkdir /data

FROM ${BASE}
ARG BASE
# of the sources, for the label
ARG REVISION=""
LABEL org.opencontainers.image.title="docsplit" \
      org.opencontainers.image.description="Vectors of whole documents over HTTP" \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
# glibc keeps freed memory in one arena for each of many threads; two of them, trimmed early, take
# less (docs/how-to/operate.md, "Capacity"). The official builds of onnxruntime report to their makers
# unless the last one is set.
ENV PATH=/opt/venv/bin:${PATH} \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    MALLOC_ARENA_MAX=2 \
    MALLOC_TRIM_THRESHOLD_=65536 \
    ORT_DISABLE_TELEMETRY=1 \
    DOCSPLIT_HOST=0.0.0.0 \
    DOCSPLIT_INDEX_PATH=/data
WORKDIR /app
COPY --from=build /opt/venv /opt/venv
COPY --from=build /app/docsplit ./docsplit
COPY --from=build /app/features ./features
COPY --from=build /app/service ./service
COPY --from=build /build/sbom.cdx.json ./sbom.cdx.json
# indexes and heads: for a volume, which takes over the owner
COPY --from=build --chown=65532:65532 /data /data
USER 65532:65532
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-m", "service.healthcheck"]
ENTRYPOINT ["docsplit-serve"]

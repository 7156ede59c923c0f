# Two stages: build with the tool chain, run with what kilnd needs (a C compiler belongs to that: it compiles kernels).
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends git make ca-certificates && rm -rf /var/lib/apt/lists/*
COPY . /src
WORKDIR /src
RUN .ci/setup run && make build && .ci/nvrtc build

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev libmicrohttpd12 libcjson1 libpq5 libhiredis0.14 \
        libsqlite3-0 libseccomp2 libarchive13 libcurl4 libgnutls30 libzstd1 libsodium23 libssl3 zlib1g curl ca-certificates && rm -rf /var/lib/apt/lists/* \
    && useradd --system --home-dir /var/lib/kiln --create-home kiln
COPY --from=build /src/build/kilnd /src/build/kiln-worker /src/build/kiln-child /src/build/kiln-gpu-run /src/build/kiln /usr/local/bin/
COPY --from=build /src/hwspecs /usr/share/kiln/hwspecs
COPY --from=build /src/build/nvrtc /usr/local/bin/nvrtc
USER kiln
VOLUME /var/lib/kiln
EXPOSE 8787
HEALTHCHECK --interval=10s --timeout=2s CMD curl -fsS http://127.0.0.1:8787/readyz || exit 1
LABEL org.opencontainers.image.title="Kiln" org.opencontainers.image.licenses="Apache-2.0"
ENTRYPOINT ["kilnd", "--hwspecs", "/usr/share/kiln/hwspecs", "--data", "/var/lib/kiln"]
CMD ["--listen", "0.0.0.0:8787", "--allow-public"]

# The engine: one binary that runs as any non-root user on a read-only root; what it keeps on disk lies on a volume (deploy/install.yaml).
FROM rust:1-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --release --bin tradeguard \
    && cp target/release/tradeguard /tradeguard

FROM debian:bookworm-slim
# The roots for metric backends and sinks with public certificates; the cluster's own come from its ServiceAccount.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /tradeguard /usr/local/bin/tradeguard
# By number, so that `runAsNonRoot` can be checked without reading /etc/passwd.
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/tradeguard"]
CMD ["run"]

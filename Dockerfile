# The image of stowplan, for those who have a container engine:
#
#   docker build --tag stowplan --build-arg REVISION="$(git rev-parse HEAD)" .
#
# `cargo testbed image` makes the image of a release without one, with the same bytes on every machine. This
# one has the same program, user and labels (tests/offline/releases.rs), but its bytes depend on the engine.

# The toolchain of rust-toolchain.toml. Another one, such as a mirror's: --build-arg RUST=…
ARG RUST=rust:1.95.0-slim-bookworm
FROM ${RUST} AS build
WORKDIR /src
RUN rustup target add "$(uname -m)-unknown-linux-musl"
COPY . .
# The parts in C and assembly (ring, psm) call nothing of a C library but `memset`, so the machine's own
# compiler will do; without the variable they ask for `musl-gcc`. Only the build needs a network.
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,sharing=locked \
    set -eu; \
    target="$(uname -m)-unknown-linux-musl"; \
    export "CC_$(echo "$target" | tr - _)=cc"; \
    export RUSTFLAGS="--remap-path-prefix=/src=/stowplan --remap-path-prefix=/usr/local/cargo/registry/src=/cargo"; \
    cargo build --locked --release --package stowplan --target "$target"; \
    cp "target/$target/release/stowplan" /stowplan; \
    if readelf --dynamic /stowplan | grep NEEDED; then echo "the program is not static" >&2; exit 1; fi; \
    /stowplan --version

FROM scratch
ARG REVISION=""
LABEL org.opencontainers.image.title="stowplan" \
      org.opencontainers.image.description="Places the pods of batch and streaming workloads on Kubernetes as their annotations request, with the stock scheduler" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/stowplan/stowplan" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build --chown=0:0 --chmod=0755 /stowplan /stowplan
USER 65532:65532
ENTRYPOINT ["/stowplan"]

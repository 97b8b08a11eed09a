# SPDX-License-Identifier: Apache-2.0
#
# An image that has the command `probing`, the core and its plugins, installed from the Debian
# package that its first stage builds. All that the build needs comes from Debian's packages and
# source packages.
#
#   docker build -t probing .
#   docker run --rm --pid=host --cap-add SYS_PTRACE probing list
#
# The program to look at runs in another container: docs/deployment.md.

FROM docker.io/library/debian:bookworm-slim AS build
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        gcc libc6-dev make cmake binutils dpkg-dev scons python3 ca-certificates xz-utils bzip2 \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY core/deps.lock core/deps.lock
COPY core/script/poll.h core/script/poll.h
COPY scripts/tools scripts/tools
# The static libraries by themselves: a change of other sources does not build them again.
RUN python3 scripts/tools/deps.py build/deps
COPY . .
# Seconds since 1970, the time of all packed files; the last commit's, or that of VERSION.
ARG SOURCE_DATE_EPOCH
RUN scons -s -j"$(nproc)" deb

FROM docker.io/library/debian:bookworm-slim
COPY --from=build /src/build/release/packages/probing_*.deb /tmp/
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        /tmp/probing_*.deb procps libcurl4 ca-certificates \
 && rm -rf /var/lib/apt/lists/* /tmp/probing_*.deb
ENTRYPOINT ["/usr/bin/probing"]
CMD ["--help"]

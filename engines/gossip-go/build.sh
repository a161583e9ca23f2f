#!/usr/bin/env bash
# Builds the Go gossip engine into bin/. Needs Go 1.23 or newer and its module proxy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o bin/millrace-gossip .

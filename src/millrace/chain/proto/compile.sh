#!/usr/bin/env bash
# Compiles the .proto files of this folder to Python modules with types. Run it as `./run proto`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
python=${PYTHON:-../.venv/bin/python}
"$python" -m grpc_tools.protoc -I . --python_out=. --pyi_out=. millrace/chain/proto/*.proto

"""`python -m millrace.gossip --socket PATH`: the peer process; `GossipHandle` starts it."""

from __future__ import annotations

import argparse
import logging
import signal

from millrace.runtime.logs import configure
from millrace.runtime.process import die_with_parent

log = logging.getLogger("millrace.gossip")


def main() -> None:
    """Run until the handle that listens on the socket goes away."""
    parser = argparse.ArgumentParser(prog="millrace.gossip", description="A libp2p peer for a gossip handle.")
    parser.add_argument("--socket", required=True, help="Unix socket on which the handle listens")
    parser.add_argument("--parent", type=int, help="process id of the handle's process")
    parser.add_argument("--log-level", default="info")
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    configure("gossip", arguments.log_level)

    import gc

    import trio

    from millrace.gossip.process import serve

    _quieten_library(verbose=arguments.log_level == "debug")
    gc.freeze()
    # libp2p imports more when its first peers meet; by the usual thresholds to walk all that held up a core for 40 ms.
    gc.set_threshold(5_000, 20, 100)
    try:
        trio.run(serve, arguments.socket)
    except Exception as error:
        cause = _innermost(error)
        log.critical(f"{type(cause).__name__}: {cause}", exc_info=cause)  # the handle shows this line
        raise SystemExit(1) from None


def _quieten_library(verbose: bool) -> None:
    """Make libp2p log as everybody does: it keeps its lines from the root logger, and sets levels of its own.

    It takes each lost connection for an error; what matters of it we log ourselves.
    """
    for name, logger in logging.root.manager.loggerDict.items():
        if name.split(".")[0] == "libp2p" and isinstance(logger, logging.Logger):
            logger.setLevel(logging.NOTSET)
            logger.propagate = True
    logging.getLogger("libp2p").setLevel(logging.WARNING if verbose else logging.CRITICAL)


def _innermost(error: BaseException) -> BaseException:
    """The first single error inside nested groups of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


if __name__ == "__main__":
    main()

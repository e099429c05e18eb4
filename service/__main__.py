"""``docsplit-serve``: start the service."""

import os
import signal
import sys

if os.getpid() == 1:
    # The kernel drops signals for process 1 unless it has a handler. Without this one, SIGTERM
    # would do nothing during the imports.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

from service.configuration import load, unknown_variables
from service.errors import ServiceError


def main(arguments: list[str] | None = None) -> int:
    """Parse settings, open the bundle, serve.

    Returns:
        Exit status: 0 after SIGTERM, 130 after SIGINT, 1 when the engine failed or work was cut
        off, 2 when settings or bundle are bad, 3 when the address is not free.
    """
    try:
        settings = load(sys.argv[1:] if arguments is None else arguments)
    except ServiceError as error:
        print(f"docsplit-serve: {error}", file=sys.stderr)  # noqa: T201
        return 2

    import structlog

    from docsplit.bundles.manifest import BundleError
    from service import logs, sockets

    logs.configure(settings.log_level, settings.log_format)
    if unknown := unknown_variables():
        structlog.get_logger("docsplit").warning("unknown_settings", variables=unknown)
    try:
        sockets.check_address(settings.host, settings.port)
        if settings.workers > 1:
            from service.server import workers

            return workers.run(settings)
        from service.server import serving
        from service.server.encoders import open_bundles
        from service.server.lifecycle import Service

        return serving.run(Service(settings, open_bundles(settings)))
    except (BundleError, ServiceError, ValueError) as error:
        print(f"docsplit-serve: {error}", file=sys.stderr)  # noqa: T201
        return 3 if isinstance(error, sockets.AddressError) else 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())

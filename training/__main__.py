"""``docsplit-train``: unlabelled documents in, an encoder out."""

import sys
from collections.abc import Sequence

from rich.console import Console

from docsplit.corpora.fields import DataError
from export.errors import explained
from training.command_line import parse
from training.errors import HeadError, TrainingError

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Train as the command line says; returns the exit status."""
    errors = Console(stderr=True, highlight=False)
    given = sys.argv[1:] if arguments is None else arguments
    try:
        if given and given[0] in ("head", "citation"):
            return _head(given[0], given[1:])
        if given and given[0] == "average":
            from training import derived

            return derived.average_main(given[1:])
        if given and given[0] == "whiten":
            from training import derived

            return derived.whiten_main(given[1:])
        settings = parse(given)
        from training.documents import check_documents

        check_documents(settings.data)
        # Imported only after the rest is checked: torch takes seconds to import.
        from training.trainer.loop import TrainingRun

        run = TrainingRun(settings)
        result = run.run()
        if run.processes.is_main and result.model is not None:
            Console(highlight=False).print(f"model: {result.model}", markup=False)
        run.processes.close()
    except (TrainingError, DataError, OSError) as error:
        errors.print(f"docsplit-train: {explained(error)}", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0 if result.finished else _INTERRUPTED


def _head(kind: str, arguments: Sequence[str]) -> int:
    from docsplit.bundles.manifest import BundleError
    from export.errors import ExportError
    from training import heads

    try:
        if kind == "head":
            return heads.classifier_main(arguments)
        return heads.citation_main(arguments)
    except (BundleError, ExportError) as error:
        raise HeadError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())

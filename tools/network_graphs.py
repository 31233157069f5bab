"""Write d2ltvm/network/graphs/ from MXNet's model zoo."""

import book
from d2ltvm.network import from_mxnet
from d2ltvm.network.models import MODELS
from d2ltvm.system import files

GRAPHS = book.ROOT / "d2ltvm" / "network" / "graphs"


def main() -> None:
    """Write the graph of each network."""
    for name in MODELS:
        text = from_mxnet.as_text(from_mxnet.trimmed(from_mxnet.symbol(name)))
        files.write(GRAPHS / f"{name}.json", text)


if __name__ == "__main__":
    book.no_arguments(__doc__)
    main()

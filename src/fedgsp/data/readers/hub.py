"""Data sets on the Hugging Face hub: `hf:OWNER/NAME` fetches the parquet files, which are read as any others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedgsp.core.errors import InputError, brief
from fedgsp.core.imports import need
from fedgsp.data.cache import Progress, silent

if TYPE_CHECKING:
    from fedgsp.data.federated import FederatedData


def load_hub(
    path: str, *, client: str = "", label: str = "", features: str = "", progress: Progress = silent, **common: Any
) -> FederatedData:
    """The parquet files of a data set on the Hugging Face hub, by its id; they stay in the hub's own cache."""
    hub = need("huggingface_hub", "hub", "fetching data from the Hugging Face hub")
    progress(f"fetching {path}", 0, 0)
    try:
        folder = hub.snapshot_download(repo_id=path, repo_type="dataset", allow_patterns=["*.parquet"])
    except Exception as error:  # anything from a wrong name to a missing network
        raise InputError(f"cannot fetch '{path}' from the hub: {brief(error)}.") from error
    from fedgsp.data.readers.parquet import load_parquet

    return load_parquet(str(folder), client=client, label=label, features=features, progress=progress, **common)

"""`habitus export`: a trained adapter as a file for the embedded judge."""

from __future__ import annotations

from pathlib import Path

import click

from habitus.cli.options import GroupedCommand

PATH = click.Path(path_type=Path)


@click.command(cls=GroupedCommand)
@click.argument("adapter", metavar="ADAPTER", type=PATH)
@click.option("--out", type=PATH, required=True, metavar="FILE.gguf", help="The file to write.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(["f16", "q8_0", "f32"]),
    default="f16",
    show_default=True,
    help="Number format; q8_0 packs the half of the matrices that can be.",
)
def export(adapter: Path, out: Path, kind: str) -> None:
    """Write the LoRA ADAPTER of a trained judge as GGUF for the embedded judge.

    ADAPTER is a folder of habitus train locals, or the model/ in one, on a Llama or Qwen 2 model. Judge with
    it as embedded:MODEL+FILE.gguf, where MODEL is the GGUF of the same base.
    """
    from habitus.cli.console import say
    from habitus.clients.lora_gguf import export_adapter

    inner = adapter / "model"
    done = export_adapter(inner if inner.is_dir() else adapter, out, kind)
    say(f"{done.path}: rank {done.rank}, {done.layers} matrices, {done.size / 1e6:.2f} MB")
    say(f"the judge: embedded:MODEL+{done.path}, such as embedded:smollm2-135m+{done.path}")

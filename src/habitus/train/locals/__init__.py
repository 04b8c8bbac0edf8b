"""Think-as-Locals: a judge that writes what matters to people there, then judges (papers: CARB A5).

`habitus.train.locals.run.train_locals` trains one, from verifiable rewards (`rewards`), after a
warm-up (`warmup`). Prompts, parser and encoder are those of `judge:PATH --mode pairwise --criteria`.
Importing this package needs no extra.
"""

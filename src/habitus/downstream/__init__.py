"""What a reward model is good for in use: best-of-n (papers: CARB A3).

A policy answers each prompt of a task N times, reward models pick among the answers, and the task
grades the picks. `tasks` has prompts and grading, `generate` the policy's answers, `pick` the
reward models' scores, `run` the folder that all of it is kept in, and `summary` the figures.
Policies are trained against reward models by `habitus.train.policy`; `policy_result` reads what it
writes.
"""

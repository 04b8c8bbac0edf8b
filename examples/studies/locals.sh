#!/bin/sh
# Does a judge that writes criteria learn more from rewards than from verdicts alone?
#
#   DATA=data MODEL=model OUT=runs/locals sh examples/studies/locals.sh
#
# DATA holds the data sets as examples/mixes/locals.toml says. MODEL is a causal language model with
# a chat template: a folder, or an id on the Hub. Needs habitus[train].
#
# Thirteen judges: the model as it is; tuned on verdicts (three seeds); tuned on fewer of them, warmed
# up on criteria that it keeps itself, then reinforced with both rewards (three seeds); from the first
# one's warm-up not reinforced at all, with either alone, with a third reward for one verdict in both
# orders, and with advantages divided by the group's spread, as in the paper (why the others are not:
# docs/decisions/0004-advantages-keep-their-size.md); and reinforced as it is.
# They are measured on the mix's held-out pairs, on carb-open (best of four), and the first seed of
# each method on the cues of carb-open.
#
# GPUS and JOBS say on how many GPUs, and how many runs at a time; FIRST, WARMUP, STEPS and VERDICTS
# are supervised steps before criteria are sampled and after, steps of reinforcement, and supervised
# steps of the judges tuned on verdicts alone: set VERDICTS so that these take as long as the others
# (the report shows the time). PAIRS keeps so many held-out pairs, ITEMS so many items of a benchmark.
# LOCALS takes further options of `habitus train locals`, RL those of reinforcement, JUDGE of the
# judges, WRITE of those that write criteria. What is done is skipped and what was begun goes on, so
# the script can be stopped and started again; other options, or those of another version of it, want
# another OUT.
set -eu

. "$(dirname "$0")/common.sh"
FIRST=${FIRST:-500}
WARMUP=${WARMUP:-400}
STEPS=${STEPS:-40}
VERDICTS=${VERDICTS:-3000}
PAIRS=${PAIRS:-}
ITEMS=${ITEMS:-}
LOCALS=${LOCALS:-}
RL=${RL:---scale-rewards none --appr-clip -5,5}
JUDGE=${JUDGE:-}
WRITE="--criteria ${WRITE:-}"

[ -e "$OUT/pairs/card.json" ] || $HABITUS pairs examples/mixes/locals.toml --data "$DATA" $CUT \
    --out "$OUT/pairs"

# --- training; each judge's benchmarks follow it ---
train() { # train JOB NAME SEED OPTIONS...
    job=$1; run=$2; seed=$3; shift 3
    grep -qs '"done": *true' "$OUT/train/$run/run.json" || queue "$job" $HABITUS train locals \
        --pairs "$OUT/pairs" --evaluate-pairs "$OUT/pairs" ${PAIRS:+--evaluate-limit $PAIRS} \
        --model "$MODEL" --out "$OUT/train/$run" --seed "$seed" --resume --on-collapse warn \
        --warmup-pairs 3200 --warmup-samples 1 $LOCALS "$@"
}
judge() { # judge JOB NAME MODEL OPTIONS...
    job=$1; run=$2; model=$3; shift 3
    options="--engine transformers --mode pairwise --pairs knockout $* $JUDGE ${ITEMS:+--limit $ITEMS} --resume"
    [ -e "$OUT/carb/$run/metrics.json" ] || queue "$job" $HABITUS evaluate "judge:$model" \
        --benchmark carb-open --out "$OUT/carb/$run" $options
    case $run in base | verdict-0 | both-0)
        [ -e "$OUT/cues/$run/diagnosis.json" ] || queue "$job" $HABITUS diagnose "judge:$model" \
            --out "$OUT/cues/$run" $options ;;
    esac
}

both="--stage both --verdict-steps $FIRST --verdict-share 0.2 --warmup-steps $WARMUP --steps $STEPS $RL"
for seed in 0 1 2; do
    train "both-$seed" "both-$seed" $seed $both
    judge "both-$seed" "both-$seed" "$OUT/train/both-$seed/model" "$WRITE"
done
train base base 0 --stage base
judge base base "$MODEL"
for seed in 0 1 2; do
    train "verdict-$seed" "verdict-$seed" $seed --stage verdict --warmup-steps "$VERDICTS"
    judge "verdict-$seed" "verdict-$seed" "$OUT/train/verdict-$seed/model"
done
# by then the first run's warm-up is done, unless it was lost: start again then
train both-0 warmup 0 $both --stage warmup --warmup-from "$OUT/train/both-0"
judge both-0 warmup "$OUT/train/warmup/model" "$WRITE"
train both-0 corr 0 $both --rewards corr --warmup-from "$OUT/train/both-0"
judge both-0 corr "$OUT/train/corr/model" "$WRITE"
train both-1 appr 0 $both --rewards appr --warmup-from "$OUT/train/both-0"
judge both-1 appr "$OUT/train/appr/model" "$WRITE"
train both-2 scaled 0 $both --scale-rewards group --appr-clip -2,2 --warmup-from "$OUT/train/both-0"
judge both-2 scaled "$OUT/train/scaled/model" "$WRITE"
train both-1 swap 0 $both --w-swap 0.5 --warmup-from "$OUT/train/both-0"
judge both-1 swap "$OUT/train/swap/model" "$WRITE"
train both-2 cold 0 --stage rl --steps "$STEPS" $RL
judge both-2 cold "$OUT/train/cold/model" "$WRITE"
judge base-criteria base-criteria "$MODEL" "$WRITE"
for rule in random longest shortest; do
    [ -e "$OUT/carb/$rule/metrics.json" ] || queue rules $HABITUS evaluate "baseline:$rule" \
        --benchmark carb-open --out "$OUT/carb/$rule" ${ITEMS:+--limit $ITEMS} --resume
done
failed=0
work || failed=1 # the pages show what is there

# --- pages; the last ones named are what the first sentence is about ---
runs=$OUT/train
$HABITUS locals-report "$runs/base" "$runs/cold" "$runs/warmup" "$runs/scaled" "$runs/corr" \
    "$runs/appr" "$runs/swap" "$runs"/verdict-* "$runs"/both-* --out "$OUT/locals.html" > "$OUT/locals.txt"
$HABITUS compare "$OUT"/carb/* --out "$OUT/carb.html" > "$OUT/carb.txt"
[ $failed = 0 ]

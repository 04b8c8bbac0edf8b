#!/bin/sh
# Does a judge that writes criteria learn more from rewards than from verdicts alone?
#
#   DATA=data MODEL=model OUT=runs/locals sh examples/studies/locals.sh
#
# DATA holds the data sets as examples/mixes/locals.toml says. MODEL is a causal language model with
# a chat template: a folder, or an id on the Hub. Needs habitus[train].
#
# Ten judges: the model as it is; tuned on verdicts (three seeds); warmed up on criteria, then
# reinforced with both rewards (three seeds), with either alone, and with both but not warmed up.
# They are measured on the mix's held-out pairs, on carb-open (best of four), and the first seed of
# each method on the cues of carb-open.
#
# GPUS and JOBS say on how many GPUs, and how many runs at a time; WARMUP, STEPS and VERDICTS are
# supervised steps, steps of reinforcement, and supervised steps of the judges tuned on verdicts:
# set VERDICTS so that these take as long as the others (the report shows the time). PAIRS keeps so
# many held-out pairs, ITEMS so many items of a benchmark; LOCALS takes further options of `habitus
# train locals`, JUDGE of the judges, WRITE of those that write criteria. What is done is skipped and
# what was begun goes on, so the script can be stopped and started again.
set -eu

. "$(dirname "$0")/common.sh"
WARMUP=${WARMUP:-1200}
STEPS=${STEPS:-60}
VERDICTS=${VERDICTS:-4000}
PAIRS=${PAIRS:-}
ITEMS=${ITEMS:-}
LOCALS=${LOCALS:-}
JUDGE=${JUDGE:-}
WRITE="--criteria ${WRITE:-}"

[ -e "$OUT/pairs/card.json" ] || $HABITUS pairs examples/mixes/locals.toml --data "$DATA" $CUT \
    --out "$OUT/pairs"

# --- training ---
train() { # train NAME SEED OPTIONS...
    run=$1; seed=$2; shift 2
    grep -qs '"done": *true' "$OUT/train/$run/run.json" || queue "$run" $HABITUS train locals \
        --pairs "$OUT/pairs" --evaluate-pairs "$OUT/pairs" ${PAIRS:+--evaluate-limit $PAIRS} \
        --model "$MODEL" --out "$OUT/train/$run" --seed "$seed" --resume --on-collapse warn \
        --warmup-pairs 1500 --warmup-samples 1 $LOCALS "$@"
}
both="--stage both --warmup-steps $WARMUP --steps $STEPS"
for seed in 0 1 2; do train "both-$seed" $seed $both; done
for seed in 0 1 2; do train "verdict-$seed" $seed --stage verdict --warmup-steps "$VERDICTS"; done
train corr 0 $both --rewards corr
train appr 0 $both --rewards appr
train cold 0 --stage rl --steps "$STEPS"
train base 0 --stage base

# --- benchmarks: each judge's follow its training ---
judge() { # judge NAME MODEL OPTIONS...
    run=$1; model=$2; shift 2
    options="--engine transformers --mode pairwise --pairs knockout $* $JUDGE ${ITEMS:+--limit $ITEMS} --resume"
    [ -e "$OUT/carb/$run/metrics.json" ] || queue "$run" $HABITUS evaluate "judge:$model" \
        --benchmark carb-open --out "$OUT/carb/$run" $options
    case $run in base | verdict-0 | both-0)
        [ -e "$OUT/cues/$run/diagnosis.json" ] || queue "$run" $HABITUS diagnose "judge:$model" \
            --out "$OUT/cues/$run" $options ;;
    esac
}
for run in both-0 both-1 both-2 corr appr cold; do judge "$run" "$OUT/train/$run/model" "$WRITE"; done
for run in verdict-0 verdict-1 verdict-2; do judge "$run" "$OUT/train/$run/model"; done
judge base "$MODEL"
judge base-criteria "$MODEL" "$WRITE"
for rule in random longest shortest; do
    [ -e "$OUT/carb/$rule/metrics.json" ] || queue rules $HABITUS evaluate "baseline:$rule" \
        --benchmark carb-open --out "$OUT/carb/$rule" ${ITEMS:+--limit $ITEMS} --resume
done
failed=0
work || failed=1 # the pages show what is there

# --- pages; the last ones named are what the first sentence is about ---
runs=$OUT/train
$HABITUS locals-report "$runs/base" "$runs/cold" "$runs/corr" "$runs/appr" "$runs"/verdict-* \
    "$runs"/both-* --out "$OUT/locals.html" > "$OUT/locals.txt"
$HABITUS compare "$OUT"/carb/* --out "$OUT/carb.html" > "$OUT/carb.txt"
[ $failed = 0 ]

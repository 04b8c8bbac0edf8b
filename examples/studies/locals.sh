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
# GPUS and JOBS say on how many GPUs, and how many runs at a time (15 is all of them); FIRST, WARMUP,
# STEPS and VERDICTS are supervised steps before criteria are sampled and after, steps of
# reinforcement, and supervised steps of the judges tuned on verdicts alone: set VERDICTS so that
# these take as long as the others (the report shows the time). ARMS names the judges, those of EVERY
# below if it is empty; warmup, corr, appr, scaled and swap need both-0. PAIRS keeps so many held-out
# pairs, ITEMS so many items of a benchmark. LOCALS takes further options of `habitus train locals`, RL
# those of reinforcement, JUDGE of the judges, WRITE of those that write criteria. What is done is
# skipped and what was begun goes on, so the script can be stopped and started again; other options, or
# those of another version of it, want another OUT.
set -eu

. "$(dirname "$0")/common.sh"
FIRST=${FIRST:-500}
WARMUP=${WARMUP:-400}
STEPS=${STEPS:-40}
VERDICTS=${VERDICTS:-3000}
EVERY="base cold warmup scaled corr appr swap verdict-0 verdict-1 verdict-2 both-0 both-1 both-2 base-criteria"
ARMS=${ARMS:-$EVERY}
PAIRS=${PAIRS:-}
ITEMS=${ITEMS:-}
LOCALS=${LOCALS:-}
RL=${RL:---scale-rewards none --appr-clip -5,5}
JUDGE=${JUDGE:-}
WRITE="--criteria ${WRITE:-}"

among() { # among NAME NAMES
    case " $2 " in *" $1 "*) ;; *) false ;; esac
}
for name in $ARMS; do
    among "$name" "$EVERY" || { echo "ARMS: no judge $name; there are $EVERY" >&2; exit 2; }
done

[ -e "$OUT/pairs/card.json" ] || $HABITUS pairs examples/mixes/locals.toml --data "$DATA" $CUT \
    --out "$OUT/pairs"

# --- training; each judge's benchmarks follow it ---
done_with() { # done_with NAME
    grep -qs '"done": *true' "$OUT/train/$1/run.json"
}
train() { # train NAME SEED OPTIONS...
    run=$1; seed=$2; shift 2
    among "$run" "$ARMS" || return 0
    done_with "$run" || queue "$run" $HABITUS train locals \
        --pairs "$OUT/pairs" --evaluate-pairs "$OUT/pairs" ${PAIRS:+--evaluate-limit $PAIRS} \
        --model "$MODEL" --out "$OUT/train/$run" --seed "$seed" --resume --on-collapse warn \
        --warmup-pairs 3200 --warmup-samples 1 --micro-batch 8 $LOCALS "$@"
}
judge() { # judge NAME MODEL OPTIONS...
    run=$1; model=$2; shift 2
    among "$run" "$ARMS" || return 0
    options="--engine transformers --mode pairwise --pairs knockout $* $JUDGE ${ITEMS:+--limit $ITEMS} --resume"
    [ -e "$OUT/carb/$run/metrics.json" ] || queue "$run" $HABITUS evaluate "judge:$model" \
        --benchmark carb-open --out "$OUT/carb/$run" $options
    case $run in base | verdict-0 | both-0)
        [ -e "$OUT/cues/$run/diagnosis.json" ] || queue "$run" $HABITUS diagnose "judge:$model" \
            --out "$OUT/cues/$run" $options ;;
    esac
}

both="--stage both --verdict-steps $FIRST --verdict-share 0.2 --warmup-steps $WARMUP --steps $STEPS $RL"
from_first() { # from_first NAME OPTIONS...: like the first of both rewards, from its warm-up
    name=$1; shift
    among "$name" "$ARMS" || return 0
    done_with "$name" || wait_for "$name" both-0 "$OUT/train/both-0/run.json" '"warmed_up": *true'
    train "$name" 0 $both --warmup-from "$OUT/train/both-0" "$@"
    judge "$name" "$OUT/train/$name/model" "$WRITE"
}
for seed in 0 1 2; do
    train both-$seed $seed $both
    judge both-$seed "$OUT/train/both-$seed/model" "$WRITE"
done
train base 0 --stage base
judge base "$MODEL"
for seed in 0 1 2; do
    train verdict-$seed $seed --stage verdict --warmup-steps "$VERDICTS"
    judge verdict-$seed "$OUT/train/verdict-$seed/model"
done
train cold 0 --stage rl --steps "$STEPS" $RL
judge cold "$OUT/train/cold/model" "$WRITE"
from_first warmup --stage warmup
from_first corr --rewards corr
from_first appr --rewards appr
from_first scaled --scale-rewards group --appr-clip -2,2
from_first swap --w-swap 0.5
judge base-criteria "$MODEL" "$WRITE"
for rule in random longest shortest; do
    [ -e "$OUT/carb/$rule/metrics.json" ] || queue rules $HABITUS evaluate "baseline:$rule" \
        --benchmark carb-open --out "$OUT/carb/$rule" ${ITEMS:+--limit $ITEMS} --resume
done
failed=0
work || failed=1

# --- pages of what is there; the last ones named are what the first sentence is about ---
trained=
judged=
for run in $EVERY; do
    [ ! -e "$OUT/train/$run/run.json" ] || trained="$trained $OUT/train/$run"
done
for run in "$OUT"/carb/*; do
    [ ! -e "$run/metrics.json" ] || judged="$judged $run"
done
[ -z "$trained" ] || $HABITUS locals-report $trained --out "$OUT/locals.html" > "$OUT/locals.txt" || failed=1
$HABITUS compare $judged --out "$OUT/carb.html" > "$OUT/carb.txt" || failed=1
[ $failed = 0 ]

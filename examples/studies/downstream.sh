#!/bin/sh
# Does accuracy on carb-open predict how well a reward model picks answers? Is a general
# preference set a better predictor?
#
#   DATA=data MODEL=model OUT=runs/study sh examples/studies/downstream.sh
#
# DATA holds the data sets as examples/mixes/locals.toml says, and hh-rlhf in its folder hh-rlhf.
# MODEL is a causal language model with a chat template (a folder, or an id on the Hub): it is the
# base of all reward models, a judge itself, and the policy. Needs habitus[train].
#
# 16 reward models: three baselines; the model as a judge in three modes; classifiers trained on a
# mix of cultural sources (two lengths of training), on everyday life (two), on surveys, and on
# general preferences; the surveys' steered to one country and to another (SCPO); a judge tuned on
# verdicts, and one that thinks as locals do. Questions of BLEnD that any of them was trained on
# are left out of the answers that are picked.
#
# GPUS and JOBS say on how many GPUs, and how many runs at a time. VERDICT and BOTH name the last
# two judges where they are there already (examples/studies/locals.sh trains them); NUMBER keeps so
# many reward models from the top. LIMIT, STEPS and N make it smaller (LIMIT=2 STEPS=2 N=2 shows how
# it goes on a CPU). POLICY also trains the model for so many steps against four of them, and grades it
# before and after. What is done is skipped and what was begun goes on, so the script can be stopped
# and started again, with a larger NUMBER too.
set -eu

. "$(dirname "$0")/common.sh"
LIMIT=${LIMIT:-}
STEPS=${STEPS:-300}
N=${N:-16}
NUMBER=${NUMBER:-16}
MIX=${MIX:-examples/mixes/locals.toml}
SHORT=$(( (STEPS + 9) / 10 ))
COUNTRIES="--country Algeria --country China --country Mexico --country South_Korea --country Spain"
LIMITED=${LIMIT:+--limit $LIMIT}
POLICY=${POLICY:-}
TRAINING=${TRAINING:-}
LOCALS=${LOCALS:-}

pairs() { # pairs NAME SOURCE options
    name=$1; shift
    [ -e "$OUT/pairs/$name/card.json" ] || $HABITUS pairs "$@" --out "$OUT/pairs/$name"
}

# --- pairs ---
pairs mix "$MIX" --data "$DATA" $CUT
pairs survey "$DATA/globalopinionqa-NC" --min-margin 0.1
pairs general "$DATA/hh-rlhf" --questions a
pairs hh-rlhf "$DATA/hh-rlhf" --questions b
[ -e "$OUT/pairs/blend/pairs.jsonl" ] || {
    mkdir -p "$OUT/pairs/blend"
    grep '"source":"blend' "$OUT/pairs/mix/pairs.jsonl" > "$OUT/pairs/blend/pairs.jsonl"
}

# --- reward models ---
classifier() { # classifier NAME PAIRS STEPS
    [ -e "$OUT/rm/$1/adapter_config.json" ] || queue "$1" $HABITUS train rm \
        --pairs "$OUT/pairs/$2" --base "$MODEL" --out "$OUT/rm/$1" --resume --lora --lr 1e-4 \
        --batch-size 32 --micro-batch 4 --max-steps "$3" --limit "${TRAIN:-16000}" $TRAINING
}
locals() { # locals NAME STAGE OPTIONS
    [ -e "$OUT/locals/$1/model/adapter_config.json" ] || queue "$1" $HABITUS train locals \
        --pairs "$OUT/pairs/mix" --model "$MODEL" --out "$OUT/locals/$1" --stage "$2" --resume \
        --warmup-steps "$STEPS" --steps "$SHORT" --on-collapse warn ${3:-} $LOCALS
}

classifier mix-short mix "$SHORT"
classifier mix mix "$STEPS"
classifier blend-short blend "$SHORT"
classifier blend blend "$STEPS"
classifier survey survey "$STEPS"
classifier general general "$STEPS"
[ -e "$OUT/scpo/units/Spain--weight--foldsplit--seed0--share100/run.json" ] || queue survey \
    $HABITUS train scpo --pairs "$OUT/pairs/survey" --base "$OUT/rm/survey" --out "$OUT/scpo" \
    --country Mexico --country Spain --variant weight --fold split --lr 1e-5 --batch-size 16 \
    --micro-batch 4 --keep-model --resume $LIMITED $TRAINING
[ "$NUMBER" -lt 15 ] || [ -n "${VERDICT:-}" ] || locals verdict verdict
[ "$NUMBER" -lt 16 ] || [ -n "${BOTH:-}" ] || locals both both "--verdict-steps $STEPS"

# --- what they are called, which training they share, after which job, and how they are run ---
head -n "$NUMBER" > "$OUT/models.txt" <<EOF
random rules baseline:random
longest rules baseline:longest
shortest rules baseline:shortest
model listwise judge:$MODEL --engine transformers --mode listwise
model pairwise judge:$MODEL --engine transformers --mode pairwise --pairs knockout
model pointwise judge:$MODEL --engine transformers --mode pointwise
mix mix-short classifier:$OUT/rm/mix-short
mix mix classifier:$OUT/rm/mix
blend blend-short classifier:$OUT/rm/blend-short
blend blend classifier:$OUT/rm/blend
survey survey classifier:$OUT/rm/survey
general general classifier:$OUT/rm/general
survey survey classifier:$OUT/scpo/units/Mexico--weight--foldsplit--seed0--share100/model
survey survey classifier:$OUT/scpo/units/Spain--weight--foldsplit--seed0--share100/model
locals verdict judge:${VERDICT:-$OUT/locals/verdict/model} --engine transformers --mode pairwise --pairs knockout
locals both judge:${BOTH:-$OUT/locals/both/model} --engine transformers --mode pairwise --pairs knockout --criteria
EOF

# --- benchmarks ---
evaluate() { # evaluate NAME BENCHMARK: the model that is read
    run="$OUT/runs/$1-$number"
    [ -e "$run/metrics.json" ] || queue "$after" $HABITUS evaluate $model --benchmark "$2" \
        --out "$run" --resume $LIMITED
}
number=0
echo name,family > "$OUT/facts.csv" # reward models of one training are no independent witnesses
while read -r family after model; do
    number=$(( number + 1 ))
    echo "culture-$number,$family" >> "$OUT/facts.csv"
    evaluate culture carb-open
    evaluate general "$OUT/pairs/hh-rlhf"
done < "$OUT/models.txt"

# --- best of N; the answers are written while reward models are trained ---
bestofn() { # bestofn COMMAND...: with scorers
    "$@" --task blend-short --data "$DATA/blend" $COUNTRIES --policy "$MODEL" \
        --engine transformers --n "$N" --max-new-tokens 32 --exclude-questions-of "$OUT/pairs/mix" \
        --exclude-questions-of "$OUT/pairs/blend" --out "$OUT/bestofn" --resume $LIMITED
}
[ -e "$OUT/bestofn" ] || bestofn queue answers $HABITUS downstream bestofn --scorer baseline:random
work
set --
while read -r family after model; do set -- "$@" --scorer "$model"; done < "$OUT/models.txt"
bestofn $HABITUS downstream bestofn "$@"

# --- does the one predict the other? ---
$HABITUS correlate "$OUT"/runs/culture-* --downstream "$OUT/bestofn" \
    --general "$OUT"/runs/general-* --facts "$OUT/facts.csv" --out "$OUT/correlate.html"

# --- what does a policy learn from them? ---
[ -z "$POLICY" ] || $HABITUS downstream policy --task blend-short --data "$DATA/blend" $COUNTRIES \
    --policy "$MODEL" --exclude-questions-of "$OUT/pairs/mix" --steps "$POLICY" --lr 1e-4 \
    --max-new-tokens 32 --scorer baseline:longest --scorer baseline:random \
    --scorer "classifier:$OUT/rm/mix" --scorer "classifier:$OUT/rm/general" --held-out-limit 40 \
    --out "$OUT/policy" --resume $LIMITED

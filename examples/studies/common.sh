# Sourced by the studies: what HABITUS is, how mixes are cut, and commands JOBS at a time, in turns on
# GPUS graphics cards.
#
#   queue NAME COMMAND...    put a command into the queue; its output goes to $OUT/log/NAME
#   work                     run what is queued; ends the script when one of them failed
#
# Folders without spaces, please: what is queued is read by a shell again.
HABITUS=${HABITUS:-habitus}
CUT= # of mixes: long pairs make all of a batch long
[ ! -d "$MODEL" ] || CUT="--max-tokens 350 --tokenizer $MODEL"
GPUS=${GPUS:-1}
JOBS=${JOBS:-1}
queued=0
mkdir -p "$OUT/queue" "$OUT/log"
rm -f "$OUT"/queue/*

queue() {
    job=$1; shift
    card=
    [ "$GPUS" = 1 ] || card="CUDA_VISIBLE_DEVICES=$(( queued % GPUS ))"
    queued=$(( queued + 1 ))
    file=$OUT/queue/$(printf %03d "$queued")-$job
    echo "$card $* >> $OUT/log/$job 2>&1 < /dev/null ||" \
        "{ echo \"$job failed: see $OUT/log/$job\" >&2; exit 1; }" > "$file"
}

work() {
    find "$OUT/queue" -type f | sort | xargs -r -P "$JOBS" -n 1 sh
    rm -f "$OUT"/queue/*
}

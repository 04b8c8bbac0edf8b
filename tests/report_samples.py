"""Synthetic runs for the report's tests: 40 items, 10 cultures x 4 domains, invented judgements."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from habitus.report import ReportData
from habitus.types import (
    Candidate,
    Comparison,
    Gloss,
    Item,
    Judgement,
    Message,
    Metric,
    Pass,
    Reference,
    RunInfo,
    ScorerSpec,
    Status,
    candidate_order,
    unit_digest,
)

DOMAINS = ("commonsense", "values", "safety", "linguistics")

# culture: country, language, script, family, Joshi class, prompt, right and three wrong responses
TEXTS = {
    "Arabic": (
        "Egypt",
        "ar",
        "Arabic",
        "Afro-Asiatic",
        "5",
        "دُعيتُ إلى بيت صديق في القاهرة، فماذا أفعل عند باب البيت؟",
        (
            "أحيّي الكبير أولًا وأدخل بعد أن يدعوني",
            "أدخل مباشرة وأجلس في صدر المجلس",
            "أنتظر حتى يخرج إليّ الأطفال بالماء",
            "أخلع معطفي وأعطيه لأصغر الضيوف",
        ),
    ),
    "Chinese": (
        "China",
        "zh-Hans",
        "Han",
        "Sino-Tibetan",
        "5",
        "在成都去同事家吃年夜饭，带什么礼物合适？",
        ("带两盒水果和一瓶好酒", "带一座漂亮的台钟", "带一束白色菊花", "带一把新的雨伞"),
    ),
    "English": (
        "United Kingdom",
        "en",
        "Latin",
        "Indo-European",
        "5",
        "I bumped into a stranger on a London bus. What do I say?",
        (
            "I just say sorry and step aside",
            "I ask for their name and number",
            "I stay silent and look straight on",
            "I offer to pay for their ticket",
        ),
    ),
    "German": (
        "Germany",
        "de",
        "Latin",
        "Indo-European",
        "5",
        "Ich gratuliere in München einer Kollegin, die erst morgen Geburtstag hat?",
        (
            "Nein, ich warte bis morgen damit",
            "Ja, heute bringt es doppelt Glück",
            "Ja, aber nur mit gelben Blumen",
            "Nein, das macht nur die Familie",
        ),
    ),
    "Japanese": (
        "Japan",
        "ja",
        "Japanese",
        "Japonic",
        "5",
        "京都の知人の家に招かれました。玄関で靴はどうしますか。",
        (
            "靴を脱いで向きをそろえて置く",
            "靴を履いたまま静かに上がる",
            "靴を脱いで手に持って歩く",
            "靴の上に布をかけて上がる",
        ),
    ),
    "Korean": (
        "South Korea",
        "ko",
        "Hangul",
        "Koreanic",
        "4",
        "부산에서 어른께 술을 따를 때 어떻게 하나요?",
        (
            "두 손으로 병을 들고 따른다",
            "왼손으로 가볍게 따른다",
            "잔을 들게 하고 멀리서 따른다",
            "먼저 마시고 나서 따른다",
        ),
    ),
    "Russian": (
        "Russia",
        "ru",
        "Cyrillic",
        "Indo-European",
        "4",
        "Иду в гости в Казани. Сколько цветов купить хозяйке?",
        (
            "Пять, потому что нужно нечётное число",
            "Шесть, потому что чётное к счастью",
            "Четыре, по числу времён года",
            "Двенадцать, как принято всегда",
        ),
    ),
    "Spanish": (
        "Mexico",
        "es",
        "Latin",
        "Indo-European",
        "5",
        "En Oaxaca, ¿qué se pone en el altar a principios de noviembre?",
        (
            "Pan, flores de cempasúchil y fotos",
            "Un abeto con luces y regalos",
            "Huevos pintados y un conejo",
            "Calabazas huecas y caramelos",
        ),
    ),
    "Thai": (
        "Thailand",
        "th",
        "Thai",
        "Kra-Dai",
        "3",
        "ไปบ้านเพื่อนที่เชียงใหม่ ควรทำอย่างไรกับรองเท้าก่อนเข้าบ้าน",
        (
            "ถอดรองเท้าวางไว้หน้าประตู",
            "ใส่รองเท้าเดินเข้าไปเลย",
            "ถอดแล้วถือเข้าไปด้วย",
            "เช็ดรองเท้าแล้วเดินเข้าไป",
        ),
    ),
    "Vietnamese": (
        "Vietnam",
        "vi",
        "Latin",
        "Austroasiatic",
        "4",
        "Ăn cơm với ông bà ở Huế, trước khi ăn nên làm gì?",
        (
            "Mời ông bà và mọi người dùng cơm",
            "Ăn ngay khi cơm còn nóng",
            "Gõ đũa vào bát ba lần",
            "Đợi khách ngồi ăn xong trước",
        ),
    ),
}


def items() -> tuple[Item, ...]:
    """Return 40 items, one per culture and domain."""
    return tuple(_item(culture, domain) for culture in TEXTS for domain in DOMAINS)


def _item(culture: str, domain: str) -> Item:
    country, language, _, _, _, prompt, responses = TEXTS[culture]
    ids = "abcd"
    others = [None, "Chinese", None, "English"]
    return Item(
        id=f"sample-{language}-{domain}",
        prompt=(Message(role="user", content=prompt),),
        candidates=tuple(
            Candidate(
                id=letter,
                text=text,
                source_model="hand",
                culture=culture if letter == "a" else other,
                note="Right: what most people there do." if letter == "a" else "Wrong here.",
            )
            for letter, text, other in zip(ids, responses, others, strict=True)
        ),
        best_ids=("a",),
        culture=culture,
        country=country,
        language=language,
        domain=domain,
        source="samples",
        licence="CC0-1.0",
        references=(
            Reference(fact="What guests do.", title="Cultural Atlas", publisher="SBS", share=0.73),
        ),
        reason="It is what hosts expect.",
        gloss=Gloss(prompt="What does a guest do?", candidates=dict.fromkeys(ids, "A response.")),
        author="language-model",
    )


def judge(
    sample: Sequence[Item], skill: float, seed: int, failures: float = 0.0, always: str = ""
) -> tuple[Judgement, ...]:
    """Invent judgements: right with probability `skill`, or always the same shown position."""
    rng = random.Random(seed)
    spec = scorer("any")
    result = []
    for item in sample:
        order = candidate_order(item, seed)
        roll, wrong = rng.random(), rng.choice("bcd")
        common = {"item_id": item.id, "unit": unit_digest(item, spec, seed), "scorer": spec.digest}
        if rng.random() < failures:
            status = rng.choice([Status.UNPARSED, Status.REFUSED, Status.ERROR])
            result.append(
                Judgement(
                    **common,
                    seed=seed,
                    status=status,
                    order=order,
                    raw="I would say <B> & perhaps C.",
                    error="two verdicts: B, C",
                )
            )
            continue
        pick = order["ABCD".index(always)] if always else ("a" if roll < skill else wrong)
        scores = {key: 0.7 if key == pick else 0.1 for key in order}
        look = Pass(order=order, scores=tuple(scores[key] for key in order), pick=order.index(pick))
        result.append(
            Judgement(
                **common,
                seed=seed,
                status=Status.OK,
                scores=scores,
                winner_ids=(pick,),
                order=order,
                passes=(look,),
                seconds=1.25,
            )
        )
    return tuple(result)


def scorer(label: str) -> ScorerSpec:
    """Return a scorer's description."""
    return ScorerSpec(
        kind="embedded",
        model=label,
        revision="sha256:0f1e2d",
        parameters={"looks": 4, "threads": 2},
    )


def wilson(right: float, n: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval."""
    z = 1.959964
    share = right / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def share(name: str, right: float, n: int, n_excluded: int = 0, **group: str) -> Metric:
    """Return a share with its interval."""
    if n == 0:
        return Metric(name=name, value=None, n=0, n_excluded=n_excluded, group=group)
    low, high = wilson(right, n)
    return Metric(
        name=name,
        value=right / n,
        n=n,
        n_excluded=n_excluded,
        ci_low=low,
        ci_high=high,
        group=group,
        interval="wilson",
    )


def metrics(sample: Sequence[Item], judgements: Sequence[Judgement]) -> tuple[Metric, ...]:
    """Return figures of the kind that a run has."""
    groups: dict[tuple[tuple[str, str], ...], list[Judgement]] = defaultdict(list)
    for item, judgement in zip(sample, judgements, strict=True):
        country, language, script, family, joshi = TEXTS[str(item.culture)][:5]
        single = {
            "culture": str(item.culture),
            "country": country,
            "language": language,
            "domain": str(item.domain),
            "source": str(item.source),
            "script": script,
            "family": family,
            "joshi_class": joshi,
        }
        groups[()].append(judgement)
        for pair in single.items():
            groups[(pair,)].append(judgement)
        groups[("culture", single["culture"]), ("domain", single["domain"])].append(judgement)
    found = []
    for group, part in groups.items():
        done = [judgement for judgement in part if judgement.status.judged]
        right = sum(judgement.winner_ids == ("a",) for judgement in done)
        found.append(share("accuracy", right, len(done), len(part) - len(done), **dict(group)))
        found.append(Metric(name="chance", value=0.25, n=len(done), group=dict(group)))
    found += _others(judgements)
    return tuple(found)


def _others(judgements: Sequence[Judgement]) -> Iterable[Metric]:
    done = [judgement for judgement in judgements if judgement.status.judged]
    right = sum(judgement.winner_ids == ("a",) for judgement in done)
    yield share("accuracy_failures_wrong", right, len(judgements))
    yield share("accuracy_macro", right, len(done))
    for status, number in Counter(judgement.status for judgement in judgements).items():
        yield Metric(
            name="status_count", value=number, n=len(judgements), group={"status": status.value}
        )
    yield share("tie_rate", 0, len(done))
    picks = Counter("ABCD"[judgement.passes[0].pick] for judgement in done)
    for letter in "ABCD":
        yield share("letter_share", picks[letter], len(done), letter=letter)
    largest = max(picks.values(), default=0) / max(1, len(done))
    yield share("flip_rate", round((largest - 0.2) * len(done)), len(done))
    yield Metric(name="letter_mass", value=0.97, n=len(done))
    yield Metric(name="detectable_difference", value=0.27, n=len(done))
    for baseline, rate in (("random", 0.25), ("longest", 0.30), ("shortest", 0.20)):
        yield share("baseline_accuracy", rate * 40, 40, baseline=baseline)
        for domain in DOMAINS:
            yield share("baseline_accuracy", rate * 10, 10, baseline=baseline, domain=domain)


def comparison(
    a: str, b: str, difference: float | None, p: float | None, n: int = 40, n_excluded: int = 0
) -> Comparison:
    """Return a comparison with an interval of 18 points to each side."""
    return Comparison(
        a=a,
        b=b,
        difference=difference,
        ci_low=None if difference is None else difference - 0.18,
        ci_high=None if difference is None else difference + 0.18,
        p=None if p is None else p / 3,
        p_holm=p,
        n=n,
        n_excluded=n_excluded,
        detectable=0.27,
    )


def run(
    label: str = "embedded:qwen3-1.7b",
    skill: float = 0.6,
    seed: int = 1,
    failures: float = 0.06,
    always: str = "",
    p: float = 0.004,
    sample: Sequence[Item] | None = None,
) -> ReportData:
    """Return a whole synthetic run."""
    sample = items() if sample is None else sample
    judgements = judge(sample, skill, seed, failures, always)
    figures = metrics(sample, judgements)
    accuracy = figures[0].value or 0.0
    kind, _, model = label.partition(":")
    return ReportData(
        info=RunInfo(
            id=f"2026-01-05-{kind}",
            config={"benchmark": "carb-open", "benchmark_digest": "9c1f", "limit": None},
            scorer=scorer(model or kind),
            seed=seed,
            n_items=len(sample),
            versions={"habitus": "0.1.0", "python": "3.11.9"},
            started="2026-01-05T10:00:00Z",
        ),
        metrics=figures,
        comparisons=(
            comparison(label, "baseline:random", accuracy - 0.25, p),
            comparison(label, "baseline:longest", accuracy - 0.30, min(1.0, 3 * p)),
            comparison(label, "baseline:shortest", accuracy - 0.20, p),
        ),
        examples=tuple(zip(sample, judgements, strict=True)),
        n_items=len(sample),
        n_judged=len(judgements),
        seconds=50.0,
        prompt_tokens=12_345,
        completion_tokens=160,
        label=label,
        notes=("2 rows of items.jsonl were skipped: no best response",),
        command=f"habitus evaluate --benchmark carb-open --scorer {label} --seed {seed}",
    )


def empty(label: str = "empty") -> ReportData:
    """Return a run without any figure or example."""
    full = run(label)
    return ReportData(
        info=full.info,
        metrics=(),
        comparisons=(),
        examples=(),
        n_items=0,
        n_judged=0,
        seconds=None,
        prompt_tokens=None,
        completion_tokens=None,
        label=label,
    )

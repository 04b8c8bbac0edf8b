"""Cues around a verdict, and refusals, in the ten languages of the benchmark.

Every list is a list of regular expressions, matched without regard to case against text in the
normal form NFKC (so is what stands here). `whole` keeps words of alphabets from matching inside
longer words; scripts that write no spaces, and Arabic with its prefixes, need none of that.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

ALPHABETIC = "0-9A-Za-z_À-ɏͰ-ӿḀ-ỿ"
"""Characters that make a neighbouring letter part of a word (Latin, Greek, Cyrillic)."""

_ALPHABETIC = re.compile(f"[{ALPHABETIC}]")


def whole(words: Sequence[str]) -> str:
    """Return a pattern for any of the words, whole where their script has words."""
    parts = []
    for word in sorted((unicodedata.normalize("NFKC", word) for word in words), key=len)[::-1]:
        before = f"(?<![{ALPHABETIC}])" if _ALPHABETIC.match(word) else ""
        after = f"(?![{ALPHABETIC}])" if _ALPHABETIC.match(word[-1]) else ""
        parts.append(f"{before}{word}{after}")
    return f"(?:{'|'.join(parts)})"


FINAL = whole(
    [
        *("final", "finally", "ultimately", "conclusion", "overall"),
        *("最终", "最終", "结论", "結論", "总之", "최종", "결론"),
        *("نهائي", "الخلاصة", "ختام"),
        *("endgültig", "endgültige", "endgültiges", "abschließend", "abschließende", "fazit"),
        *("finales", "finale", "finalmente", "definitiva", "definitivo", "conclusión"),
        *(r"окончательн\w*", r"итогов\w*", "итог", "итого", r"финальн\w*", "вывод"),
        *("สุดท้าย", "สรุป", "cuối cùng", "chung cuộc", "kết luận"),
    ]
)
"""Words that declare what follows to be final."""

NOUNS = whole(
    [
        *("answer", "verdict", "choice", "judgement", "judgment", "decision", "response", "option"),
        *("pick", "winner", "candidate", "best", "better"),
        *("答案", "回答", "选择", "選擇", "判断", "判斷", "裁决", "裁決", "最佳", "更好的"),
        *("答え", "選択", "判定", "正解", "最良", "最適"),
        *("정답", "답", "답변", "선택", "판단", "판정"),
        *("إجابة", "اجابة", "جواب", "حكم", "اختيار", "خيار"),
        *("antwort", "urteil", "wahl", "entscheidung", "auswahl"),
        *("respuesta", "veredicto", "elección", "opción", "decisión", "mejor"),
        *("ответ", "вердикт", "выбор", "решение", "вариант", "лучше", "лучший"),
        *("คำตอบ", "คำตัดสิน", "ตัวเลือก", "ข้อสรุป"),
        *("câu trả lời", "đáp án", "trả lời", "phán quyết", "lựa chọn", "phương án"),
    ]
)
"""Nouns that name a verdict, before a connector."""

CONNECTORS = (
    r"(?::|=>|->|=|→|⇒|—|–|-(?=\s)|"
    + whole(
        [
            *("is", "would be", "must be", "should be", "will be", "remains"),
            *("是", "为", "為", "は", "이", "은", "는", "هي", "هو", "คือ", "ได้แก่"),
            *("ist", "lautet", "wäre", "es", "sería", "это", "là", "sẽ là"),
        ]
    )
    + ")"
)
"""What links a cue to its verdict."""

VERBS = whole(
    [
        r"I(?:'d|'ll| would| will| must| am| have)?(?: \w+){0,2}? "
        r"(?:choose|chose|chosen|pick|picked|select|selected|vote for|go with|going with|opt for)",
        *("我选", "我选择", "我選", "我選擇", "选择", "選擇", "选", "選"),
        *("أختار", "اخترت", "سأختار"),
        *("ich wähle", "wähle ich", "ich entscheide mich für", "entscheide ich mich für"),
        *("elijo", "escojo", "selecciono", "me quedo con", "opto por", "elegiría"),
        *("выбираю", "я выбрал", "я выбрала", "выберу"),
        *("ขอเลือก", "เลือก", "tôi chọn", "mình chọn", "chọn"),
    ]
)
"""Verbs of choosing, directly before a verdict."""

FILLERS = whole(
    [
        *("clearly", "definitely", "probably", "likely", "therefore", "thus", "the", "letter"),
        *("option", "answer", "response", "candidate", "choice", "number"),
        *("选项", "選項", "回答", "答案", "選択肢", "보기", "답변"),
        *("الخيار", "الإجابة", "الحرف", "الجواب"),
        *("die", "antwort", "option", "la", "el", "opción", "respuesta", "letra"),
        *("вариант", "ответ", "под буквой", "буква"),
        *("ตัวเลือก", "ข้อ", "คำตอบ", "phương án", "đáp án", "câu", "lựa chọn", "chữ cái"),
    ]
)
"""Words that may stand between a connector and a verdict."""

NEGATIONS = whole(
    [
        *("not", "never", "no", r"\w+n't", "neither", "nor", "nicht", "kein", "keine", "nunca"),
        *("不", "并非", "並非", "没", "沒", "別", "ない", "아니", "않", "не", "ни"),
        *("ไม่", "không", "chưa", "chẳng", "ليس", "لا ", "لن "),
    ]
)
"""Words that turn a cue around."""

BEST = whole(
    [
        *("best", "most appropriate", "most accurate", "most suitable", "most fitting", "winner"),
        *("最好", "最佳", "最合适", "最合適", "最恰当", "最恰當", "最正确", "最正確", "正确答案"),
        *("最も", "一番", "最適", "最良", "正解", "ベスト", "가장", "정답"),
        *("الأفضل", "الأنسب", "الأصح", "أفضل إجابة"),
        *("beste", "besten", "am besten", r"mejor (?:respuesta|opción)", "la mejor"),
        *("лучший", "лучшая", "лучше всех", "лучше всего", "наилучший"),
        *("ดีที่สุด", "คำตอบที่ดีที่สุด", "เหมาะสมที่สุด", "tốt nhất", "phù hợp nhất"),
    ]
)
"""What is said of the winner, after its letter."""

BETTER = whole(
    [
        *("better", "besser", "bessere", "mejor", "лучше", "更好", "更佳", "より良", "より適切"),
        *("더 낫", "더 좋", "더 나은", "ดีกว่า", "tốt hơn", "أفضل"),
    ]
)
"""What is said of the better one of two, after its letter."""

COPULAS = (
    r"(?:—|–|:|"
    + whole(["is", "ist", "es", "là", "是", "が", "は", "이", "가", "คือ", "เป็น", "هي", "هو"])
    + ")"
)
"""What links a letter to `BEST` or `BETTER`."""

ALTERNATIVES = whole(
    [
        *("or", "and", "oder", "und", "o", "y", "e", "u", "или", "и", "hoặc", "và", "hay"),
        *("或", "和", "与", "與", "及", "または", "か", "と", "또는", "이나", "와", "과"),
        *("หรือ", "และ", "أو", "و"),
    ]
)
"""Words that name a second verdict beside the first."""

BEGINNINGS = whole(
    [
        *("because", "since", "as", "for", "with", "and", "or", "but", "which", "over", "due"),
        *("given", "is", "was", "than", "weil", "da", "denn", "ist", "und", "oder"),
        *("porque", "ya", "pues", "por", "es", "y", "o", "vì", "do", "bởi", "là", "hoặc", "và"),
    ]
)
"""Words that may follow the letter A or I when it is a verdict, not an article or a pronoun."""

RATING_NOUNS = whole(
    [
        *("rating", "rate", "rated", "score", "scored", "grade", "points", "mark"),
        *("give", "gives", "assign", "deserves", "verdict", "judgement", "judgment", "answer"),
        *("评分", "評分", "分数", "分數", "得分", "打分", "评", "給", "给"),
        *("評価", "点数", "スコア", "得点", "採点", "평점", "점수", "평가", "등급"),
        *("تقييم", "التقييم", "درجة", "الدرجة", "أعطي", "أمنح"),
        *("bewertung", "note", "punktzahl", "punkte", "bewerte", "vergebe", "gebe"),
        *("puntuación", "calificación", "nota", "valoración", "puntaje", "califico", "doy"),
        *("оценка", "оценку", "балл", "баллов", "рейтинг", "оцениваю", "ставлю"),
        *("คะแนน", "ให้คะแนน", "ประเมิน", "điểm", "điểm số", "đánh giá", "chấm", "xếp hạng"),
    ]
)
"""Words that name a rating, before it."""

TO = r"\s*(?:-|–|—|~|〜|/|" + (
    whole(["to", "bis", "a", "до", "至", "到", "から", "부터", "에서", "إلى", "ถึง", "đến"])
    + r")\s*"
)
"""What stands between the ends of a scale."""

OUT_OF = r"\s*(?:/|" + whole(["out of", "of", "von", "de", "из", "sur", "من", "จาก", "trên"]) + ")"
"""What stands between a rating and the top of its scale."""

REFUSALS = [
    unicodedata.normalize("NFKC", pattern)
    for pattern in (
        r"\b(?:I|we) (?:\w+ )?(?:cannot|can't|can not|could not|couldn't|won't|will not|must not)\b",
        r"\b(?:unable|not able|not possible|impossible|not appropriate|inappropriate) to\b",
        r"\b(?:I|we) (?:\w+ )?(?:decline|refuse|(?:do not|don't) feel comfortable)\b",
        r"\bmust decline\b|\bas an? (?:AI|language model)\b|\bI'm sorry\b|\bI am sorry\b",
        r"\bI apologi[sz]e\b|\bcannot (?:compare|judge|choose|decide|rate|assist|help|answer)\b",
        "无法|無法|不能|没有办法|沒有辦法|没法|沒法|拒绝|拒絕|不便|抱歉|对不起|對不起|很遗憾|很遺憾",
        "できません|出来ません|できかね|いたしかね|お断り|申し訳|すみません|選べません|判断できない",
        "수 없습니다|수 없어|수 없음|수가 없|불가능|죄송|거절|거부|어렵습니다|곤란",
        "لا أستطيع|لا استطيع|لا يمكن|لا نستطيع|لا أقدر|آسف|أعتذر|عذرا|معذرة|أرفض|غير قادر|يتعذر|لست قادر",
        r"\bkann (?:\w+ ){0,6}nicht\b|\bkann ich (?:\w+ ){0,6}nicht\b|\bnicht möglich\b|\bunmöglich\b",
        r"\btut mir (?:\w+ )?leid\b|\blehne (?:\w+ ){0,6}ab\b|\bweigere\b|\bnicht in der lage\b",
        r"\bno (?:\w+ )?(?:puedo|podemos|podría|debo|es posible)\b|\blo siento\b|\bme niego\b",
        r"\bincapaz\b|\bimposible\b|\bdisculp\w+|\bno soy capaz\b|\bperdón\b|\blamento\b",
        r"\bне (?:\w+ )?(?:могу|можем|буду|способ\w+|в состоянии)\b|\bневозможно\b|\bотказываюсь\b",
        r"\bизвините\b|\bпростите\b|\bк сожалению\b|\bприношу извинения\b",
        "ไม่สามารถ|ไม่อาจ|ขออภัย|ขอโทษ|เสียใจ|ปฏิเสธ",
        "không thể|xin lỗi|từ chối|rất tiếc|không có khả năng|không được phép",
    )
]
"""What a judge says that does not want to judge."""

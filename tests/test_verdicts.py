"""The one parser: what counts as a verdict, what is none, and what is a refusal, in ten languages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from habitus.types import Status
from habitus.verdicts import parse_letter, parse_rating, split_thinking

LETTERS = "ABCD"


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("[[A]] is tempting, but look closer.\nfinal: [[C]]", "C"),
        ("[[A]] is tempting ... final: [[C]]", "C"),
        ("[[A]] is tempting, but the best answer is [[C]].", "C"),
        ("Verdict: A. Wait, actually final: C", "C"),
        ("My final verdict is: [[B]]", "B"),
        ("Finally, I choose C.", "C"),
        ("### Final verdict\n\n[[D]]", "D"),
        ("I prefer how [[A]] begins. Final answer: **D**", "D"),
        ("<judgement>B</judgement>", "B"),
        ("<judgment> B. </judgment>", "B"),
        ("<judgement>\nb\n</judgement>", "B"),
        ("<judgement>Answer B</judgement>", "B"),
        ("The judgement: <judgement>C</judgement>, since A is from Spain.", "C"),
        ("<judgement>C", "C"),
        ("<answer>[[A]]</answer>", "A"),
        ("<criteria>\n1. The best answer is A.\n</criteria>\n<judgement>C</judgement>", "C"),
        ("\\boxed{B}", "B"),
        ("$\\boxed{\\text{B}}$", "B"),
        ("Final Answer: The final answer is $\\boxed{C}$", "C"),
        ("Best answer: B", "B"),
        ("Best answer:\n\n**B**", "B"),
        ("**Best answer:** B", "B"),
        ("**Best answer**: B", "B"),
        ('Best answer: "B"', "B"),
        ("Best answer: D. The others are wrong because A is from Spain.", "D"),
        ("Best answer: A because it fits", "A"),
        ("Best answer: Answer D, since", "D"),
        ("Answer: B, because A is wrong", "B"),
        ("The answer is A, C is wrong", "A"),
        ("The best answer is B.", "B"),
        ("The best answer would be option B", "B"),
        ("The correct answer is (D).", "D"),
        ("My choice would be D.", "D"),
        ("I would go with option C.", "C"),
        ("I don't think the others fit. I choose B", "B"),
        ("A is not the best. The best answer is C.", "C"),
        ("Answer B is the best.", "B"),
        ("B is clearly the best answer", "B"),
        ('{"answer": "B"}', "B"),
        ('{"verdict": "C", "reason": "A is wrong"}', "C"),
        ("I cannot compare them fully, but [[B]] fits", "B"),
        ("[[b]]", "B"),
        ("［［Ｂ］］", "B"),
        ("B", "B"),
        ("B.", "B"),
        ("(b)", "B"),
        ("a", "A"),
        ("**B**", "B"),
        ("Option D", "D"),
        ("B) because it fits", "B"),
        ("B. Soba noodles, for a long life.", "B"),
        ("A is from Spain and C from Korea.\n\nB", "B"),
        ("A. x\nB. y\nC. z\nBest: B", "B"),
        ("最佳答案是B", "B"),
        ("答案：Ｂ", "B"),
        ("我选择 C，因为……", "C"),
        ("我非常确定答案是B", "B"),
        ("正解はDです。", "D"),
        ("最も良い回答はBです", "B"),
        ("Bを選びます", "B"),
        ("정답은 B입니다.", "B"),
        ("B를 선택합니다", "B"),
        ("الإجابة الأفضل هي \u200fB", "B"),
        ("أفضل إجابة: C", "C"),
        ("أختار D", "D"),
        ("Die beste Antwort ist B.", "B"),
        ("Ich wähle C, weil", "C"),
        ("La mejor respuesta es la D.", "D"),
        ("Elijo la C porque", "C"),
        ("Лучший ответ — B", "B"),
        ("выбираю B", "B"),
        ("คำตอบที่ดีที่สุดคือ B", "B"),
        ("ฉันเลือก C", "C"),
        ("Câu trả lời tốt nhất là B.", "B"),
        ("Tôi chọn B", "B"),
        ("最终答案：C", "C"),
        ("最終的な答え: C", "C"),
        ("최종 답변: C", "C"),
        ("الإجابة النهائية: C", "C"),
        ("Endgültige Antwort: C", "C"),
        ("Respuesta final: C", "C"),
        ("Окончательный ответ: C", "C"),
        ("คำตอบสุดท้าย: C", "C"),
        ("Đáp án cuối cùng: C", "C"),
    ],
)
def test_letters_that_are_verdicts(text, letter):
    found = parse_letter(text, LETTERS)
    assert (found.status, found.value) == (Status.OK, letter)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n\u200b ", "empty"),
        ("<think>It is B", "thinking does not end"),
        ("B <think>or not", "thinking does not end"),
        ("<think>B</think>", "empty"),
        ("Best answer: B</think>", "empty"),
        ("final: [[A]] final: [[B]]", "several verdicts: A, B"),
        ("<judgement>A</judgement> or rather <judgement>B</judgement>", "several"),
        ("<judgement>A</judgement> Final answer: B", "several"),
        ("[[A]] [[B]]", "several"),
        ("I prefer A. Best answer: A. [[B]]", "several"),
        ("Final answer: A\n[[B]]", "several"),
        ("The best answer is [[A]] or [[B]].", "several"),
        ("The best answer is A or B", "several"),
        ("Best answer: A/B", "several"),
        ("Best answer: A, B, C, D", "several"),
        ("答案：A或B", "several"),
        ("A\nB\nC", "several"),
        ("Best answer: E", "E is none of A, B, C, D"),
        ("[[Z]]", "Z is none of"),
        ("<judgement>F</judgement>", "F is none of"),
        ("The best answer is not B.", "no verdict"),
        ("The best answer isn't B", "no verdict"),
        ("The best answer is either A or B", "no verdict"),
        ("I would not choose B.", "no verdict"),
        ("最佳答案不是B", "no verdict"),
        ("不选B", "no verdict"),
        ("La mejor respuesta no es B", "no verdict"),
        ("Đáp án không phải là B", "no verdict"),
        ("tôi không chọn B", "no verdict"),
        ("Best answer: A cup of tea", "no verdict"),
        ("Best answer: I think so", "no verdict"),
        ("Answer: Both", "no verdict"),
        ("the answer is b", "no verdict"),
        ("It is a tie.", "no verdict"),
        ("Answer B looks weak.", "no verdict"),
        ("Both A and B are good. None is best.", "no verdict"),
        ("A cup of tea.", "no verdict"),
    ],
)
def test_texts_without_one_verdict(text, reason):
    found = parse_letter(text, LETTERS)
    assert (found.status, found.value) == (Status.UNPARSED, None)
    assert reason in found.reason


REFUSALS = [
    "I cannot compare these answers.",
    "I’m sorry, but I can’t judge that.",
    "As an AI, I have no preference.",
    "It would be inappropriate to choose one.",
    "我无法比较这些回答。",
    "抱歉，我不能评分。",
    "比較することはできません。",
    "申し訳ありませんが、お答えしかねます。",
    "죄송하지만 비교할 수 없습니다.",
    "لا أستطيع المقارنة بين الإجابات",
    "عذرًا، لا يمكنني الحكم",
    "Ich kann das leider nicht vergleichen.",
    "Es tut mir leid, das ist mir nicht möglich.",
    "No puedo comparar estas respuestas.",
    "Lo siento, no me es posible juzgar.",
    "Я не могу сравнить эти ответы.",
    "Извините, это невозможно.",
    "ไม่สามารถเปรียบเทียบได้",
    "ขออภัย ฉันตัดสินไม่ได้",
    "Tôi không thể so sánh các câu trả lời này.",
    "Xin lỗi, tôi từ chối.",
]


@pytest.mark.parametrize("text", REFUSALS)
def test_refusals_in_ten_languages(text):
    assert parse_letter(text, LETTERS).status is Status.REFUSED
    assert parse_letter(f"<think>A or B? [[A]]</think>{text}", LETTERS).status is Status.REFUSED
    assert parse_rating(text, 1, 10).status is Status.REFUSED


def test_better_decides_between_two_only():
    assert parse_letter("Response A is better than Response B", "AB").value == "A"
    assert parse_letter("Response A is better than Response B", LETTERS).value is None


def test_the_letter_i_counts_only_where_it_is_offered():
    assert parse_letter("Best answer: I", "ABCDEFGHI").value == "I"
    assert parse_letter("Best answer: I", LETTERS).value is None


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("B", "", "B"),
        ("<think>A?</think>B", "<think>A?</think>", "B"),
        ("A?</think>\nB", "A?</think>", "\nB"),
        (
            "<THINK>a</THINK>b<thinking>c</thinking>d",
            "<THINK>a</THINK>b<thinking>c</thinking>",
            "d",
        ),
        ("<think>a <think>b</think> c</think>d", "<think>a <think>b</think> c</think>", "d"),
        ("<think>A", "<think>A", None),
        ("<think>A</think>B<think>C", "<think>A</think>B<think>C", None),
    ],
)
def test_thinking_is_cut_off(text, thinking, answer):
    assert split_thinking(text) == (thinking, answer)


def test_the_verdict_stands_after_the_thinking():
    text = "<think>Final answer: A. <judgement>A</judgement></think>\n\nBest answer: C"
    assert parse_letter(text, LETTERS).value == "C"
    assert parse_rating("<think>Rating: 2</think>Rating: 9", 1, 10).value == 9


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        ("8", 8),
        ("8.", 8),
        ("**8**", 8),
        ("10", 10),
        ("1", 1),
        ("7.5", 7.5),
        ("7,5", 7.5),
        ("8/10", 8),
        ("8 out of 10", 8),
        ("Rating: **8/10**", 8),
        ("Rating: 7.5", 7.5),
        ("Rating: 8\n\nBecause 2 of the 3 points hold", 8),
        ("Rating: 8 because 9 would be too much", 8),
        ("I'd rate this a solid 8.", 8),
        ("On a scale from 1 to 10, I rate it 8", 8),
        ("I give it 8 of 10 points", 8),
        ("Accuracy: 7, tone: 9. Overall score: 8", 8),
        ("[[8]]", 8),
        ("<judgement>8</judgement>", 8),
        ("<criteria>\n1. Rating: 3\n</criteria>\n<judgement>8/10</judgement>", 8),
        ("\\boxed{9}", 9),
        ("评分：8", 8),
        ("8分", 8),
        ("評価: 8点", 8),
        ("점수: 9점", 9),
        ("التقييم: ٨", 8),
        ("Bewertung: 7,5 von 10", 7.5),
        ("Puntuación: 6", 6),
        ("Оценка: 6 из 10", 6),
        ("คะแนน: ๙", 9),
        ("Điểm: 10", 10),
    ],
)
def test_ratings(text, rating):
    found = parse_rating(text, 1, 10)
    assert (found.status, found.value) == (Status.OK, rating)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("<think>8", "thinking"),
        ("Rating: 11", "11 is not within 1 to 10"),
        ("Rating: 0", "0 is not within"),
        ("-3", "-3 is not within"),
        ("8,500", "8500 is not within"),
        ("4/5", "'4/5' is no rating on this scale"),
        ("80/100", "no rating on this scale"),
        ("80%", "no verdict"),
        ("7-8", "'7-8' is no rating"),
        ("Rating: 7 to 8", "no rating"),
        ("Rating: 7. Rating: 8", "several verdicts: 7.0, 8.0"),
        ("Rating: 1e5", "no verdict"),
        ("the 8th", "no verdict"),
        ("It is good.", "no verdict"),
        ("Rating from 1 to 10:", "no verdict"),
    ],
)
def test_texts_without_one_rating(text, reason):
    found = parse_rating(text, 1, 10)
    assert (found.status, found.value) == (Status.UNPARSED, None)
    assert reason in found.reason


def test_the_declared_scale_decides():
    assert parse_rating("4/5", 1, 5).value == 4
    assert parse_rating("85 out of 100", 0, 100).value == 85
    assert parse_rating("Rating: 0", 0, 9).value == 0


TAGS = ["[[A]]", "[[", "]]", "<think>", "</think>", "<judgement>", "</judgement>", "\\boxed{", "}"]
WORDS = ["final", "best", "answer", " is ", ": ", "A", "B", "C", " or ", "not ", "I cannot ", "\n"]
ODD = ["8", "/10", "-", "答案", "คำตอบ", "إجابة", "ا", "\u200f", "é", "．", "٨", "\ud800", "\x00"]
PIECES = st.sampled_from([*TAGS, *WORDS, *ODD])


@given(st.one_of(st.text(), st.lists(PIECES, max_size=30).map("".join)))
def test_no_text_raises_and_a_value_is_one_that_was_offered(text):
    letter = parse_letter(text, LETTERS)
    assert (letter.value in tuple(LETTERS)) == (letter.status is Status.OK)
    rating = parse_rating(text, 1, 10)
    assert (rating.value is not None) == (rating.status is Status.OK)
    assert rating.value is None or 1 <= rating.value <= 10
    assert (letter.reason is None) == (letter.status is Status.OK)
    thinking, answer = split_thinking(text)
    assert thinking + (answer or "") == text


@given(st.text(alphabet=st.characters(exclude_characters="<>"), max_size=60))
def test_thoughts_change_no_verdict(thoughts):
    assert parse_letter(f"<think>{thoughts}</think>B", LETTERS).value == "B"
    assert parse_letter(f"<think>{thoughts}", LETTERS).status is Status.UNPARSED


@pytest.mark.parametrize("text", ["answer ", "[[ ", "final ", "<judgement>", "1-", "<criteria>"])
def test_long_texts_are_read_in_no_time(text):
    parse_letter(text * 200_000, LETTERS)
    parse_rating(text * 200_000, 1, 10)

"""A row in each layout that `rollbox data` reads, as the data sets themselves have it (their texts are our own)."""

from __future__ import annotations

import json
from typing import Any

GSM8K = {
    "question": "Ann has 3 apples and buys 1,004. How many has she?",
    "answer": "3 + 1004 = <<3+1004=1007>>1007\n#### 1,007",
}
DAPO_PROMPT = "Solve the problem step by step. The last line is of the form Answer: $Answer.\n\nWhat is 6 times 7?"
DAPO = {
    "data_source": "math_dapo",
    "prompt": [{"role": "user", "content": DAPO_PROMPT}],
    "ability": "MATH",
    "reward_model": {"ground_truth": "42", "style": "rule-lighteval/MATH_v2"},
    "extra_info": {"index": "9a9b6eb4-a1cb-49d1-8c1e-62eaf2f74079"},
}
AIME = {"id": 60, "problem": "Find 11 + 13.", "solution": "It is 24.", "answer": "024", "year": "2024"}
SEARCH_R1 = {
    "id": "train_0",
    "question": "what is the capital of peru?",
    "golden_answers": ["Lima"],
    "data_source": "nq",
    "prompt": [{"role": "user", "content": "Answer the given question. Question: what is the capital of peru?"}],
    "reward_model": {"style": "rule", "ground_truth": {"target": ["Lima", "Lima, Peru"]}},
    "metadata": None,
}
FLASHRAG = {"id": "dev_3", "question": "Which lake is the deepest?", "golden_answers": ["Baikal"]}
CODE_CONTESTS = {
    "name": "4_A. Watermelon",
    "description": "Say YES where the even number is more than two.",
    "public_tests": {"input": ["8\n"], "output": ["YES\n"]},
    "private_tests": {"input": ["3\n"], "output": ["NO\n"]},
    "generated_tests": {"input": ["2\n", "6\n"], "output": ["NO\n", "YES\n"]},
    "solutions": {"language": [3], "solution": ["print('YES')"]},
    "input_file": "",
}
APPS = {
    "problem_id": 12,
    "question": "Print the sum of the two numbers.",
    "input_output": json.dumps({"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}),
    "starter_code": "",
}
APPS_FUNCTION = {
    "problem_id": 2361,
    "question": "Return the sum of the two numbers.",
    "input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], [7]]}),
    "starter_code": "def add(a, b):\n\t",
}
TACO = {"question": "Print twice the number.", "input_output": json.dumps({"inputs": ["4\n"], "outputs": ["8\n"]})}
EURUS = {
    "data_source": "taco",
    "prompt": [
        {"role": "system", "content": "Use the actions."},
        {"role": "user", "content": "Print thrice the number.\n\nWrite Python code to solve the problem."},
    ],
    "ability": "code",
    "reward_model": {"ground_truth": json.dumps({"inputs": ["2\n"], "outputs": ["6\n"]}), "style": "rule"},
    "extra_info": {"index": 0, "split": "dummy"},
}
EURUS_MATH = {
    **EURUS,
    "data_source": "numina_olympiads",
    "prompt": [{"role": "user", "content": "Find x."}],
    "reward_model": {"ground_truth": "7", "style": "rule"},
}
HELD_OUT: dict[str, Any] = {
    "gsm8k": {"question": "What is 2 + 2?", "answer": "#### 4"},
    "dapo-math": {"problem": "What is 5 - 3?", "answer": 2},
    "search-qa": {"question": "Who wrote Faust?", "golden_answers": ["Goethe"], "data_source": "hotpotqa"},
    "code": {**TACO, "question": "Print four times the number.", "input_output": '{"inputs": ["1"], "outputs": ["4"]}'},
}

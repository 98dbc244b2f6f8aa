"""Chat templates as the rules of well-known model families, written down anew: what matters is how they treat turns.

Each tokenizer is the demo's, with the family's end token added as a special token.
"""

from __future__ import annotations

from typing import Any

QWEN2_5 = """
{%- if tools %}<|im_start|>system
You are Qwen.

# Tools
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools><|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}
{%- if loop.first or messages[loop.index0 - 1].role != "tool" %}<|im_start|>user{% endif %}
<tool_response>
{{ message.content }}
</tool_response>
{%- if loop.last or messages[loop.index0 + 1].role != "tool" %}<|im_end|>
{% endif %}
{%- elif message.role == "assistant" and message.tool_calls %}<|im_start|>assistant
{%- if message.content %}
{{ message.content }}
{%- endif %}
{%- for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

# Thinking is shown only in turns after the last question, and an empty block is put into the last turn.
QWEN3 = """
{%- if tools %}<|im_start|>system
# Tools
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% endif %}
{%- set ns = namespace(last_question=0) %}
{%- for message in messages %}
{%- if message.role == "user" %}{% set ns.last_question = loop.index0 %}{% endif %}
{%- endfor %}
{%- for message in messages %}
{%- if message.role == "tool" %}
{%- if loop.first or messages[loop.index0 - 1].role != "tool" %}<|im_start|>user{% endif %}
<tool_response>
{{ message.content }}
</tool_response>
{%- if loop.last or messages[loop.index0 + 1].role != "tool" %}<|im_end|>
{% endif %}
{%- elif message.role == "assistant" %}
{%- set content = message.content %}
{%- set thought = "" %}
{%- if "</think>" in content %}
{%- set thought = content.split("</think>")[0].split("<think>")[-1].strip("\\n") %}
{%- set content = content.split("</think>")[-1].lstrip("\\n") %}
{%- endif %}<|im_start|>assistant
{% if loop.index0 > ns.last_question and (loop.last or thought) %}<think>
{{ thought }}
</think>

{% endif %}{{ content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}"""

# The prompt itself opens the thinking; history is written without it.
R1_DISTILL = """
{%- for message in messages %}
{%- if message.role == "assistant" %}<|im_start|>assistant
{{ message.content.split("</think>")[-1] }}<|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}"""

# One header per message, no newline after the end token, tool output as JSON from a role of its own, one call a turn.
LLAMA3 = """{{ "<|begin_of_text|>" }}
{%- if tools %}<|start_header_id|>system<|end_header_id|>

{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|eot_id|>{% endif %}
{%- for message in messages %}
{%- if message.role in ("tool", "ipython") %}<|start_header_id|>ipython<|end_header_id|>

{{ message.content | tojson }}<|eot_id|>
{%- elif message.tool_calls %}
{%- if message.tool_calls | length != 1 %}{{ raise_exception("one call at a time") }}{% endif %}
{%- set call = message.tool_calls[0].function %}<|start_header_id|>assistant<|end_header_id|>

{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}<|eot_id|>
{%- else %}<|start_header_id|>{{ message.role }}<|end_header_id|>

{{ message.content | trim }}<|eot_id|>
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>

{% endif %}"""

SMOLLM2 = """
{%- for message in messages %}
{%- if loop.first and messages[0].role != "system" %}<|im_start|>system
You are a helpful AI assistant<|im_end|>
{% endif %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

# Tools before the last question only; a tool message must follow a turn that called, and carry its nine-character id.
MISTRAL = """{{ "<s>" }}
{%- set ns = namespace(last_question=0) %}
{%- for message in messages %}
{%- if message.role == "user" %}{% set ns.last_question = loop.index0 %}{% endif %}
{%- endfor %}
{%- for message in messages %}
{%- if message.role == "user" %}
{%- if tools and loop.index0 == ns.last_question %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}
{{- "[INST] " + message.content + "[/INST]" }}
{%- elif message.tool_calls %}[TOOL_CALLS] [
{%- for call in message.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception("ids have nine characters") }}{% endif %}
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}, "id": "{{ call.id }}"}
{%- endfor %}]</s>
{%- elif message.role == "assistant" %} {{ message.content | trim }}</s>
{%- elif message.role == "tool" %}
{%- set before = messages[loop.index0 - 1] %}
{%- if before.role != "tool" and not before.tool_calls %}{{ raise_exception("a result of no call") }}{% endif %}
{%- if message.tool_call_id | length != 9 %}{{ raise_exception("ids have nine characters") }}{% endif %}
[TOOL_RESULTS] {"content": {{ message.content | tojson }}, "call_id": "{{ message.tool_call_id }}"}[/TOOL_RESULTS]
{%- endif %}
{%- endfor %}"""

FAMILIES: dict[str, tuple[str, str]] = {
    "qwen2.5": (QWEN2_5, "<|im_end|>"),
    "qwen3": (QWEN3, "<|im_end|>"),
    "r1-distill": (R1_DISTILL, "<|im_end|>"),
    "llama3": (LLAMA3, "<|eot_id|>"),
    "smollm2": (SMOLLM2, "<|im_end|>"),
    "mistral": (MISTRAL, "</s>"),
}
"""Name -> template and end token."""


def family_tokenizer(name: str) -> Any:
    """A tokenizer that speaks like the family `name`."""
    from rollbox.demo.tokenizer import build_tokenizer

    template, end_token = FAMILIES[name]
    tokenizer = build_tokenizer()
    tokenizer.add_special_tokens({"eos_token": end_token})
    tokenizer.chat_template = template.removeprefix("\n")
    return tokenizer

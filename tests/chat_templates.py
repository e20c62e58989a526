"""Chat templates as models of the field have them, written anew, and the control tokens that they spell."""

from __future__ import annotations

CHAT_ML = """
{%- if messages[0].role != 'system' %}{{ '<|im_start|>system\\nBe helpful.<|im_end|>\\n' }}{% endif -%}
{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor -%}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
LLAMA_2 = """
{%- if messages[0]['role'] == 'system' -%}
{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] -%}
{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif -%}
{% for message in loop_messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif -%}
{% if loop.index0 == 0 and system_message != false -%}
{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] -%}
{% else %}{% set content = message['content'] %}{% endif -%}
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' -}}
{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token -}}
{% else %}{{ content }}{% endif %}{% endfor %}"""
LLAMA_3 = """
{%- for message in messages %}
{%- set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' %}
{%- if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}
{{- content }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""
LLAMA_31 = """{{ bos_token }}
{%- if tools is defined and tools is not none %}{{ '<|start_header_id|>environment<|end_header_id|>' }}
{%- for tool in tools %}{{ '\\n' + (tool | tojson(indent=2)) }}{% endfor %}{{ '<|eot_id|>' }}{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' or message.role == 'ipython' %}
{{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' }}
{%- if message.content is mapping %}{{ message.content | tojson }}{% else %}{{ message.content }}{% endif %}{{ '<|eot_id|>' }}
{%- else %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""
GEMMA_3 = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' %}{% set first_user_prefix = messages[0]['content'] + '\\n\\n' %}
{%- set loop_messages = messages[1:] %}
{%- else %}{% set first_user_prefix = '' %}{% set loop_messages = messages %}{% endif %}
{%- for message in loop_messages %}
{%- set role = 'model' if message['role'] == 'assistant' else message['role'] %}
{{- '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else '') }}
{%- if message['content'] is string %}{{ message['content'] | trim }}{% endif %}
{{- '<end_of_turn>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"""
MISTRAL = """{{ bos_token }}{% set ns = namespace(system='') %}
{%- for message in messages %}
{%- if message.role == 'system' %}{% set ns.system = message.content ~ '\\n\\n' %}
{%- elif message.role == 'assistant' %}{{ ' ' ~ message.content | trim ~ eos_token }}
{%- elif message.role == 'tool' %}{{ '[TOOL_RESULTS]' ~ ('%s' % message.content) ~ '[/TOOL_RESULTS]' }}
{%- else %}{{ '[INST] ' ~ ns.system ~ message.content ~ ' [/INST]' }}{% set ns.system = '' %}{% endif %}{% endfor %}"""
PHI_3 = """{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}{% endfor -%}
{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"""
ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% else %}
{{ '<|assistant|>\\n'  + message['content'].lstrip() + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""
QWEN_3 = """
{%- set ns = namespace(last=-1) %}
{%- for message in messages %}{% if message.role == 'user' and not message.content.startswith('<tool_response>') %}
{%- set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}{% set content = message.content %}{% set thought = '' %}
{%- if '</think>' in message.content %}
{%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
{%- set thought = message.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}{% endif %}
{%- if loop.index0 > ns.last and (loop.last or thought) %}
{{- '<|im_start|>assistant\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
{%- else %}{{ '<|im_start|>assistant\\n' + content }}{% endif %}{{ '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' }}{{ message.content }}{{ '\\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
{%- else %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}"""
DEEPSEEK = """{{ bos_token }}{% set ns = namespace(system='', first=true) %}
{%- for message in messages %}{% if message.role == 'system' %}
{%- if ns.first %}{% set ns.system = ns.system + message.content %}{% set ns.first = false %}
{%- else %}{% set ns.system = ns.system + '\\n\\n' + message.content %}{% endif %}{% endif %}{% endfor %}
{{- ns.system }}
{%- for message in messages %}{% if message.role == 'user' %}{{ '<|User|>' + message.content }}
{%- elif message.role == 'assistant' %}{% set content = message.content %}
{%- if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}
{{- '<|Assistant|>' + content + '<|end_of_sentence|>' }}
{%- elif message.role == 'tool' %}{{ '<|tool_begin|>' + message.content + '<|tool_end|>' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|Assistant|>' }}{% endif %}"""
VICUNA = """
{%- for message in messages %}{% if message.role == 'user' %}USER: {{ message.content.strip() }}
{%- elif message.role == 'assistant' %} ASSISTANT: {{ message.content.strip() }}{{ eos_token }}
{%- else %}{{ message.content.strip() }}
{% endif %} {% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"""
COMMAND_R = """{{ bos_token }}
{%- macro turn(name, text) %}<|START_OF_TURN|>{{ name }}{{ text }}<|END_OF_TURN|>{% endmacro %}
{%- for message in messages %}
{%- if message.role == 'system' %}{{ turn('<|SYSTEM|>', message.content) }}
{%- elif message.role == 'user' %}{{ turn('<|USER|>', message.content | trim) }}
{%- elif message.role == 'tool' %}
{%- set result %}<results>
{{ message['content'] | indent(2) }}
</results>{% endset %}{{ turn('<|SYSTEM|>', result) }}
{%- else %}{{ turn('<|CHATBOT|>', message.get('content')) }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|START_OF_TURN|><|CHATBOT|>{% endif %}"""
ESCAPES = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content | e }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
AS_JSON = """{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is iterable %}{{ message.content | tojson }}{% else %}{{ message.content }}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

TEMPLATES = {
    "chat-ml": CHAT_ML,
    "llama-2": LLAMA_2,
    "llama-3": LLAMA_3,
    "llama-3.1": LLAMA_31,
    "gemma-3": GEMMA_3,
    "mistral": MISTRAL,
    "phi-3": PHI_3,
    "zephyr": ZEPHYR,
    "qwen-3": QWEN_3,
    "deepseek": DEEPSEEK,
    "vicuna": VICUNA,
    "command-r": COMMAND_R,
    "escapes": ESCAPES,
    "as-json": AS_JSON,
}
CONTROL = (
    "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>",
    "<end_of_turn>", "[INST]", "[/INST]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>",
    "<|end|>", "<|User|>", "<|Assistant|>", "<|end_of_sentence|>", "<|tool_begin|>", "<|tool_end|>", "<|START_OF_TURN|>",
    "<|END_OF_TURN|>", "<|SYSTEM|>", "<|USER|>", "<|CHATBOT|>",
)  # fmt: skip
"""Every control token that the templates spell; `<s>` and `</s>` are BOS and EOS."""

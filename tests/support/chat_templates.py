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
ALPACA = """
{%- for message in messages %}{% if message.role == 'user' %}{{ '### Instruction:\\n' + message.content + '\\n\\n' }}
{%- elif message.role == 'assistant' %}{{ '### Response:\\n' + message.content + '\\n\\n' }}
{%- else %}{{ message.content + '\\n\\n' }}{% endif %}{% endfor -%}
{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}"""
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
    "alpaca": ALPACA,
    "command-r": COMMAND_R,
    "escapes": ESCAPES,
    "as-json": AS_JSON,
}
CONTROL = (
    "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>",
    "<end_of_turn>", "[INST]", "[/INST]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>",
    "<|end|>", "<|User|>", "<|Assistant|>", "<|end_of_sentence|>", "<|tool_begin|>", "<|tool_end|>", "<|START_OF_TURN|>",
    "<|END_OF_TURN|>", "<|SYSTEM|>", "<|USER|>", "<|CHATBOT|>", "<|image_1|>",
)  # fmt: skip
"""Every control token that the templates spell; `<s>` and `</s>` are BOS and EOS. `<|image_1|>` holds a number."""

OWN = {
    "literal": "{{ '<s>' }}{{ content }}{{ \"</s>\" }}",
    "bos": "{{ bos_token }}{{ content ~ eos_token }}",
    "adjoining": "{{ '<' '|im_start|>' }}{{ '<' + 's>' }}{{ '<' ~ 's>' }}<{{ 's' }}>{{ content }}",
    "macro default": "{% macro m(x='<s>', y='</s>') %}{{ x }}{{ content }}{{ y }}{% endmacro %}{{ m() }}{{ m(y='<s>') }}"
    "{{ m('</s>') }}",
    "macro varargs": "{% macro m() %}{{ varargs[0] }}{{ kwargs.k }}{{ varargs | join }}{% endmacro %}"
    "{{ m('<s>', k='</s>') }}",
    "dict": "{% set d = {'user': '<s>', '<|im_end|>': '</s>'} %}{{ d.user }}{{ d[role] }}"
    "{% for k, v in d.items() %}{{ k ~ v }}{% endfor %}",
    "dict function": "{% set d = dict(user='<s>') %}{{ d.user }}{{ d.get('x', '</s>') }}{{ d[role] }}",
    "namespace": "{% set ns = namespace(a='<s>') %}{{ ns.a }}{% set ns.b = '</s>' %}{{ ns.b ~ content }}",
    "lists": "{{ ['<s>', '</s>'] | join }}{{ ['<s>', '</s>'] | first }}{{ ['<s>', '</s>'][-1] }}"
    "{{ ('<s>', 'b') | last }}{{ ['<s>'] | map('trim') | join }}",
    "joiner": "{% set j = joiner('</s>') %}{{ j() }}{{ content }}{{ j() }}{% set c = cycler('<s>', '</s>') %}"
    "{{ c.next() }}{{ c.next() }}{{ loop_x or '<s>' }}",
    "cycle": "{% for x in [1, 2] %}{{ loop.cycle('<s>', '</s>') }}{{ loop.index }}{% endfor %}",
    "percent": "{{ '<%s>' % 's' }}{{ '%s%s' % ('<s>', '</s>') }}{{ '<|%s|>' % role }}",
    "format": "{{ '<{}>'.format('s') }}{{ '<|{r}|>'.format(r=role) }}{{ '<|%s|>' | format(role) }}",
    "numbers": "{{ '<|image_' ~ 1 ~ '|>' }}{{ '<|image_' + (1 | string) + '|>' }}{{ '<|image_%d|>' % 1 }}"
    "{{ '<|image_{}|>'.format(loop_x | length + 1) }}<|image_{{ 1 }}|>{{ ['<|image_', 1, '|>'] | join }}",
    "filters": "{{ '<S>' | lower }}{{ '<S>'.lower() }}{{ ' <s> ' | trim }}{{ '<x>' | replace('x', 's') }}"
    "{{ '<|USER|>' | lower | upper }}{{ '<s>' | indent }}{{ '<s>' | center(9) }}"
    "{{ '<s>' | string | safe }}{{ '<s> <s>' | wordwrap(4) }}{{ '<s>' | default('x') }}"
    "{{ nothing | default('<s>') }}{{ '<s>' | reverse | reverse }}{{ '<s>' | list | join }}",
    "roles": "{{ '<|' + (role | upper) + '|>' }}{{ '<|' + role.capitalize() + '|>' }}"
    "{{ '<|' + role | title + '|>' }}{{ '<|' ~ role | upper | lower ~ '|>' }}",
    "set block": "{% set x %}<s>{{ content }}</s>{% endset %}{{ x | trim }}{% set y | upper | lower %}<s>{% endset %}"
    "{{ y }}",
    "filter block": "{% filter trim %} <s>{{ content }} </s>{% endfilter %}{% filter lower %}<S>{% endfilter %}",
    "call block": "{% macro m(x) %}{{ x }}{{ caller('</s>') }}{% endmacro %}{% call(e) m('<s>') %}{{ content ~ e }}"
    "{% endcall %}",
    "blocks": "{% block a %}<s>{{ messages[0].content }}{{ self.b() }}{% endblock %}{% block b %}</s>{% endblock %}",
    "ternary": "{{ '<s>' if content else '</s>' }}{{ '' or '<s>' }}{{ '<s>' and '</s>' }}"
    "{{ ('<s>' if true) ~ content }}",
    "split": "{{ '<s>,</s>'.split(',') | join }}{% for x in '<s>,</s>'.split(',') %}{{ x }}{% endfor %}"
    "{{ '<s>\n</s>'.splitlines() | last }}{{ 'a<s>'[1:] }}{{ '<s>' * 2 }}{{ 'a<s>b'.partition('<s>')[1] }}",
    "json": "{{ ['<s>'] | tojson }}{{ {'a': '</s>'} | tojson }}{{ {'a': '</s>'} }}{{ ['<s>', 1, none] }}",
    "with": "{% with a = '<s>' %}{{ a }}{{ content }}{% endwith %}{% generation %}</s>{% endgeneration %}",
    "raw": "{% raw %}<s>{% endraw %}{{ content }}{%- raw -%} </s> {%- endraw %}",
    "recursive": "{% for x in [['<s>', ['</s>']]] recursive %}{{ x if x is string else loop(x) }}{% endfor %}",
    "time": "{{ strftime_now('<s>') }}{{ '<s>%s</s>' % strftime_now('%Y') }}{{ '<s>' ~ strftime_now('%Y') ~ '</s>' }}",
    "args": "{{ '<s>' if flag else '</s>' }}{{ ('<s>', '</s>')[n] }}",
    "comment": "<{# x #}s>{{ content }}<{{ '' }}/s>",
}
"""Ways in which a template may write control tokens of its own, with `content`, `role`, `flag` and `n` at hand."""

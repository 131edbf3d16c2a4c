"""A transformer, made from a config, whose LoRA adapters alone are trained and sent: `pip install transformers peft`."""

from dataclasses import replace

import numpy as np
import peft
import torch
import transformers

import fedgsp
from fedgsp.client import SGD

torch.manual_seed(0)
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
config = transformers.BertConfig(vocab_size=20, pad_token_id=0, max_position_embeddings=8, **sizes)
base = transformers.BertForSequenceClassification(config)
model = peft.get_peft_model(base, peft.LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["query", "value"]))

rng = np.random.default_rng(0)
topics = np.arange(600) % 2
words = rng.integers(1, 10, (600, 6)) + 9 * topics[:, None]  # each topic has words of its own
data = fedgsp.from_arrays(words, topics, np.arange(600) // 20)  # 30 clients

method = replace(fedgsp.named("fedgsp"), local=SGD(lr=0.02, optim="adam"))
result = fedgsp.train(method, data, model, rounds=3, workers=0)

sent = sum(tensor.numel() for tensor in result.state.model.values())
whole = sum(p.numel() for p in model.parameters())
print(f"accuracy {result.accuracy:.3f}, {sent:,} of {whole:,} numbers were sent")

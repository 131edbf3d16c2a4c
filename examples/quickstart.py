"""Train FedGSP on handwriting that the package draws itself, look at the result, take the model away."""

import torch

import fedgsp

data = fedgsp.load("glyphs:clients=30")
print(data)

result = fedgsp.train("fedgsp", data, "small_cnn", rounds=10)
for entry in result.history:
    print(f"round {entry['round']:2d}: {entry['groups']:2d} groups, accuracy {entry['accuracy']:.3f}")
print(f"accuracy {result.accuracy:.3f}, mean of the last rounds")

model = result.model().eval()
with torch.inference_mode():
    picture = torch.zeros(1, *data.sample_shape)
    print("class of an empty picture:", int(model(picture).argmax()))

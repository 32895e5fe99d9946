import sys
import torch
from seed_models import ScaleBN

model = torch.jit.script(ScaleBN(320, 160))
model.save("model.pt")  # a file that needs no Tailor
torch.ops.load_library(sys.argv[1])
torch.ops.tailor.fuse_(model)
model.save("fused.pt")

import sys

import torch
from seed_models import ScaleBN

library, folder = sys.argv[1:]
model = torch.jit.script(ScaleBN(96, 160))
model.save(folder + "/model.pt")  # a file that needs no Tailor
torch.ops.load_library(library)
print(torch.ops.tailor.fuse_(model))
model.save(folder + "/fused.pt")

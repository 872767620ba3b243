# SPDX-License-Identifier: Apache-2.0
"""KVarN: calibration-free KV-cache quantization by variance normalization.

The method is described in arXiv 2606.03458.  The modules here know nothing of
vLLM's engine and load by themselves:

* ``config``     the cache dtype, bytes per tile, offsets in a tile (standard library)
* ``reference``  the method in torch, and what the kernels are tested against
* ``plan``       which tile is read from where in one step (torch)
* ``kernels``    Triton: quantize a tile, store tokens, decode, dequantize
* ``attention``  one layer's update and attention, built from the above
* ``specs``      page and block sizes of layers that share a pool with KVarN's
"""

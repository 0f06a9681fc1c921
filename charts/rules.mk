# SPDX-License-Identifier: Apache-2.0
# The image, the chart and the manifests made from it.
IMAGE := $(BUILD)/images/podflame.tar
.PHONY: image manifests release
image: ## localhost/podflame and localhost/podflame-cuda, in build/images/podflame*.tar
image: $(IMAGE)
$(IMAGE): $(BUILD)/podflame charts/image.sh e2e/cluster/mkimage.sh
	$(call msg,IMAGE,$@)
	$(Q)charts/image.sh $< localhost/podflame:$(VERSION) $@
release: image ## chart, images, what they contain (SPDX) and checksums, in build/release
	$(Q)charts/release.sh $(BUILD)/release $(VERSION) $(IMAGE) $(CUDA_IMAGE)
	$(call msg,RELEASE,$(BUILD)/release)
manifests: ## manifests/ again from the chart
	$(Q)charts/manifests.sh manifests

"""Networks. They know images and weights; what their scores mean is decided in `rewardlab.rewards`."""

from rewardlab.models.classifiers import ImageClassifier, success_loss
from rewardlab.models.image_preprocessor import ImagePreprocessor
from rewardlab.models.pooling import SpatialLearnedEmbeddings
from rewardlab.models.resnet import ResNet
from rewardlab.models.weights import load_encoder_weights

__all__ = [
    "ImageClassifier",
    "ImagePreprocessor",
    "ResNet",
    "SpatialLearnedEmbeddings",
    "load_encoder_weights",
    "success_loss",
]

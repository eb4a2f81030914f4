#include "model/weights/quantised_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "model/tensor/blocks.h"
#include "model/weights/checkpoint_pager.h"
#include "model/weights/name_map.h"
#include "tests/support/quantised_module.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"

namespace tlm {
namespace {

using Format = QuantisationScheme::Format;

constexpr char kUp[] = "model.layers.0.mlp.up_proj";

// A small model whose linear maps have 128, 256 and 384 inputs.
ModelConfig SmallLlama() {
  ModelConfig config;
  config.vocab_size = 24;
  config.context_length = 16;
  config.d_model = 256;
  config.num_layers = 1;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 32;
  config.d_ff = 384;
  return config;
}

bool IsLinear(const TensorSpec& spec) { return spec.layer >= 0 && spec.shape.rank() == 2; }

std::string ModuleOf(const std::string& weight) { return weight.substr(0, weight.rfind('.')); }

// A checkpoint whose linear maps are quantised and whose other tensors are F32.
class QuantisedWeightsTest : public ::testing::Test {
 protected:
  void Fill(const std::vector<QuantisationScheme>& schemes, const QuantisedStorage& storage) {
    config_.quantisation = schemes;
    size_t next = 0;
    for (const TensorSpec& spec : ExpectedTensors(config_)) {
      if (IsLinear(spec)) {
        elements_[spec.name] =
            AddQuantisedModule(schemes[next++ % schemes.size()], storage, ModuleOf(spec.name),
                               spec.shape[0], spec.shape[1], random_, &tensors_);
      } else {
        tensors_[spec.name] = {DType::kF32, spec.shape,
                               std::string(4 * static_cast<size_t>(spec.shape.elements()), '\0')};
      }
    }
  }

  // Writes the tensors and binds them, with a pager.
  absl::Status Bind() {
    SafetensorsWriter writer;
    for (const auto& [name, tensor] : tensors_) {
      writer.Add(name, tensor.dtype, tensor.shape, tensor.bytes);
    }
    dir_.Write("model.safetensors", writer.Bytes());
    TLM_ASSIGN_OR_RETURN(checkpoint_, Checkpoint::Open(dir_.path()));
    TLM_ASSIGN_OR_RETURN(bound_, BindWeights(config_, *checkpoint_));
    pager_.emplace(*checkpoint_, CheckpointPager::Options{.threads = 2});
    TLM_ASSIGN_OR_RETURN(weights_, QuantisedWeights::Reserve(config_, bound_, *checkpoint_, 2));
    weights_->ReadBy(&*pager_);
    return absl::OkStatus();
  }

  TensorView ViewOf(const TensorSpec& spec) {
    ModelWeights weights = weights_->weights();
    return *PlaceOf(spec, &weights);
  }

  // The elements that the blocks of an acquired matrix mean, inputs in their order.
  static std::vector<float> ElementsOf(const TensorView& view) {
    const auto k = static_cast<size_t>(view.shape[1]);
    std::vector<float> stored(view.elements());
    Dequantise(view.dtype, view.as<std::byte>(), stored.size() / BlockOf(view.dtype).elements,
               stored.data());
    if (view.input_order == nullptr) return stored;
    std::vector<float> elements(stored.size());
    for (size_t i = 0; i < stored.size(); ++i) {
      elements[i / k * k + static_cast<size_t>(view.input_order[i % k])] = stored[i];
    }
    return elements;
  }

  void ExpectElements() {
    for (const TensorSpec& spec : ExpectedTensors(config_)) {
      const TensorView view = ViewOf(spec);
      ASSERT_THAT(weights_->weights().pager->Acquire({&view, 1}), IsOk()) << spec.name;
      if (IsLinear(spec)) {
        ASSERT_TRUE(IsBlockQuantised(view.dtype)) << spec.name;
        EXPECT_EQ(ElementsOf(view), elements_.at(spec.name)) << spec.name;
      } else {
        EXPECT_EQ(view.dtype, DType::kF32) << spec.name;
      }
      weights_->weights().pager->Release({&view, 1});
    }
  }

  // The error of binding, or else of acquiring the matrix of kUp.
  absl::Status Error() {
    TLM_RETURN_IF_ERROR(Bind());
    const TensorView view = weights_->weights().layers[0].up;
    return weights_->weights().pager->Acquire({&view, 1});
  }

  ModelConfig config_ = SmallLlama();
  std::mt19937_64 random_{7};
  StoredTensors tensors_;
  std::map<std::string, std::vector<float>> elements_;  // by the name of the floats
  const TempDir dir_;
  std::optional<Checkpoint> checkpoint_;
  ModelWeights bound_;
  std::optional<CheckpointPager> pager_;
  std::optional<QuantisedWeights> weights_;
};

struct Case {
  std::string name;
  QuantisationScheme scheme;
  QuantisedStorage storage = {};
};
void PrintTo(const Case& tested, std::ostream* out) { *out << tested.name; }

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const int64_t group : {32, 64, 128, 0}) {
    const std::string size = "_group_" + std::to_string(group);
    for (const bool symmetric : {false, true}) {
      const std::string kind = symmetric ? "_symmetric" : "_asymmetric";
      cases.push_back({"awq" + size + kind, {Format::kAwq, 4, group, symmetric, false, false}});
      for (const int bits : {4, 8}) {
        const std::string end = "_" + std::to_string(bits) + "_bits" + size + kind;
        cases.push_back({"gptq" + end, {Format::kGptq, bits, group, symmetric, true, false}});
        cases.push_back({"gptq_v2" + end, {Format::kGptq, bits, group, symmetric, false, false}});
        cases.push_back({"pack" + end,
                         {Format::kPackQuantised, bits, group, symmetric, false, false},
                         {.scales = DType::kBF16, .integers = DType::kI64, .stores_zeros = false}});
        cases.push_back({"int" + end,
                         {Format::kIntQuantised, bits, group, symmetric, false, false},
                         {.scales = DType::kF32, .stores_zeros = false}});
        if (group == 0) continue;
        cases.push_back(
            {"gptq_act_order" + end, {Format::kGptq, bits, group, symmetric, true, true}});
        cases.push_back({"pack_act_order" + end,
                         {Format::kPackQuantised, bits, group, symmetric, false, true},
                         {.integers = DType::kI64}});
      }
    }
  }
  for (const DType scales : {DType::kF32, DType::kBF16}) {
    const auto add = [&](const std::string& name, Format format, int64_t high, int64_t wide) {
      cases.push_back({"float8_" + name + "_" + DTypeName(scales),
                       {.format = format,
                        .bits = 8,
                        .group_size = wide,
                        .symmetric = true,
                        .group_outputs = high},
                       {.scales = scales}});
    };
    add("tensor", Format::kFloat8, 0, 0);
    add("channel", Format::kFloat8, 1, 0);
    add("group", Format::kFloat8, 1, 64);
    add("block_128", Format::kFloat8Blocks, 128, 128);
    add("block_100_by_96", Format::kFloat8Blocks, 100, 96);  // the last of a matrix are smaller
  }
  return cases;
}

class QuantisedFormatsTest : public QuantisedWeightsTest,
                             public ::testing::WithParamInterface<Case> {};

TEST_P(QuantisedFormatsTest, BlocksMeanWhatTheFormatSays) {
  Fill({GetParam().scheme}, GetParam().storage);
  ASSERT_THAT(Bind(), IsOk());
  ExpectElements();
}

INSTANTIATE_TEST_SUITE_P(All, QuantisedFormatsTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST_F(QuantisedWeightsTest, BlocksAreTheLargestThatDivideAGroup) {
  Fill({{Format::kGptq, 4, 0, true, true, false}}, {});
  ASSERT_THAT(Bind(), IsOk());
  const LayerWeights& layer = weights_->weights().layers[0];
  EXPECT_EQ(layer.q.dtype, DType::kI4G256);     // 256 inputs
  EXPECT_EQ(layer.o.dtype, DType::kI4G128);     // 128
  EXPECT_EQ(layer.down.dtype, DType::kI4G128);  // 384
  const uint64_t layer_elements =
      256 * (128 + 64 + 64) + 128 * 256 + 3 * 256 * 384;  // of matrices in blocks
  EXPECT_GT(QuantisedWeights::ResidentBytesFor(config_, bound_), layer_elements / 2);
  EXPECT_LT(QuantisedWeights::ResidentBytesFor(config_, bound_), layer_elements);
}

TEST_F(QuantisedWeightsTest, SchemesAreToldByTheTensors) {
  Fill({{Format::kPackQuantised, 4, 64, false, false, false},
        {Format::kIntQuantised, 8, 0, true, false, false},
        {Format::kPackQuantised, 8, 128, true, false, false}},
       {.scales = DType::kBF16, .stores_zeros = false});
  ASSERT_THAT(Bind(), IsOk());
  ExpectElements();
}

TEST_F(QuantisedWeightsTest, GroupsInOrderNeedNoOrder) {
  Fill({{Format::kGptq, 4, 64, false, true, false}}, {.stores_groups = true});
  ASSERT_THAT(Bind(), IsOk());
  EXPECT_EQ(weights_->weights().layers[0].up.input_order, nullptr);
  ExpectElements();
}

TEST_F(QuantisedWeightsTest, EqualOrdersAreOne) {
  Fill({{Format::kGptq, 4, 64, false, true, true}}, {});
  tensors_[std::string(kUp) + ".g_idx"] = tensors_["model.layers.0.mlp.gate_proj.g_idx"];
  ASSERT_THAT(Bind(), IsOk());
  const LayerWeights& layer = weights_->weights().layers[0];
  ASSERT_NE(layer.gate.input_order, nullptr);
  EXPECT_EQ(layer.gate.input_order, layer.up.input_order);
  EXPECT_NE(layer.q.input_order, layer.k.input_order);
}

TEST_F(QuantisedWeightsTest, ModulesThatAreFloatsStayFloats) {
  Fill({{Format::kAwq, 4, 64, false, false, false}}, {});
  const std::string module = kUp;
  for (const char* const part : {".qweight", ".qzeros", ".scales"}) tensors_.erase(module + part);
  tensors_[module + ".weight"] = {DType::kBF16, {384, 256}, std::string(2 * 384 * 256, '\0')};
  ASSERT_THAT(Bind(), IsOk());
  EXPECT_EQ(weights_->weights().layers[0].up.dtype, DType::kBF16);
  EXPECT_EQ(weights_->weights().layers[0].gate.dtype, DType::kI4G64);
}

TEST_F(QuantisedWeightsTest, NamesMayLackTheirPrefix) {
  Fill({{Format::kPackQuantised, 4, 64, false, false, false}}, {});
  StoredTensors renamed;
  for (auto& [name, tensor] : tensors_) {
    renamed[name.starts_with("model.") ? name.substr(6) : name] = std::move(tensor);
  }
  tensors_ = std::move(renamed);
  ASSERT_THAT(Bind(), IsOk());
  ExpectElements();
}

TEST_F(QuantisedWeightsTest, UnsetGroupsAreThoseInOrder) {
  Fill({{Format::kPackQuantised, 4, 64, false, false, false}}, {.stores_groups = true});
  tensors_[std::string(kUp) + ".weight_g_idx"].bytes = std::string(4 * 256, '\xff');
  ASSERT_THAT(Bind(), IsOk());
  ExpectElements();
}

TEST_F(QuantisedWeightsTest, BiasesOfZeroAreAllowed) {
  Fill({{Format::kGptq, 4, 64, true, true, false}}, {});
  const std::string name = std::string(kUp) + ".bias";
  tensors_[name] = {DType::kF16, {384}, std::string(2 * 384, '\0')};
  ASSERT_THAT(Bind(), IsOk());
  tensors_[name].bytes[100] = '\1';
  EXPECT_THAT(Bind(), IsInvalidArgument("up_proj.bias", "is not 0"));
  tensors_[name] = {DType::kF16, {383}, std::string(2 * 383, '\0')};
  EXPECT_THAT(Bind(), IsInvalidArgument("has shape [383], the configuration asks for [384]"));
}

TEST_F(QuantisedWeightsTest, IdentityCoversScales) {
  Fill({{Format::kAwq, 4, 64, false, false, false}}, {});
  const auto identity = [this] {
    EXPECT_THAT(Bind(), IsOk());
    ExpectElements();
    return *pager_->Identity();
  };
  const std::string before = identity();
  CheckpointPager reader(*checkpoint_, {.check_finite = false, .release = false, .threads = 1});
  for (const TensorSpec& spec : ExpectedTensors(config_)) {
    ASSERT_THAT(reader.Acquire(weights_->StoredOf(ViewOf(spec))), IsOk());
  }
  EXPECT_EQ(*reader.Identity(), before);
  std::string& scales = tensors_[std::string(kUp) + ".scales"].bytes;
  uint16_t half;
  std::memcpy(&half, scales.data(), 2);
  ++half;
  std::memcpy(scales.data(), &half, 2);
  ASSERT_THAT(Bind(), IsOk());
  const TensorView view = weights_->weights().layers[0].up;
  ASSERT_THAT(weights_->weights().pager->Acquire({&view, 1}), IsOk());
  std::vector<float>& expected = elements_.at(std::string(kUp) + ".weight");
  expected = ElementsOf(view);
  EXPECT_NE(identity(), before);
}

const std::string kModule = kUp;
StoredTensor Zeros(DType dtype, const Shape& shape) {
  return {dtype, shape,
          std::string(StoredBytes(dtype, static_cast<size_t>(shape.elements())), '\0')};
}
auto Replace(const char* suffix, DType dtype, const Shape& shape) {
  return [=](StoredTensors& tensors) { tensors[kModule + suffix] = Zeros(dtype, shape); };
}
auto Remove(const char* suffix) {
  return [=](StoredTensors& tensors) { tensors.erase(kModule + suffix); };
}
// A number of `Number` at index `at`.
template <typename Number>
auto Put(const char* suffix, size_t at, Number value) {
  return [=](StoredTensors& tensors) {
    std::memcpy(tensors.at(kModule + suffix).bytes.data() + at * sizeof(value), &value,
                sizeof(value));
  };
}

constexpr QuantisationScheme kAwq{Format::kAwq, 4, 64, false, false, false};
constexpr QuantisationScheme kGptq{Format::kGptq, 4, 64, false, true, true};
constexpr QuantisationScheme kPack{Format::kPackQuantised, 4, 64, false, false, true};
constexpr QuantisationScheme kInt{Format::kIntQuantised, 8, 64, false, false, false};
constexpr QuantisationScheme kFp8{Format::kFloat8Blocks, 8, 64, true, false, false, 128};

// A fault of the module's tensors: the tensor that is named, and what is said of it.
struct Fault {
  std::function<void(StoredTensors&)> spoil;
  std::string tensor;
  std::string message;
};

class QuantisedFaultsTest : public QuantisedWeightsTest {
 protected:
  void ExpectNamed(const QuantisationScheme& scheme, const std::vector<Fault>& faults) {
    for (const Fault& fault : faults) {
      tensors_.clear();
      Fill({scheme}, {});
      fault.spoil(tensors_);
      EXPECT_THAT(Error(), IsInvalidArgument(kModule + fault.tensor, fault.message));
    }
  }
};

TEST_F(QuantisedFaultsTest, OfAwqNameTensorValueAndLimit) {
  ExpectNamed(
      kAwq,
      {{Replace(".qweight", DType::kI32, {256, 47}), ".qweight",
        "has shape [256, 47]; quantization_config, with 4 bits and groups of 64, and a matrix "
        "of 384 outputs and 256 inputs ask for [256, 48]"},
       {Replace(".qweight", DType::kI32, {32, 384}), ".qweight", "ask for [256, 48]"},
       {Replace(".qweight", DType::kI16, {256, 48}), ".qweight", "is I16, supported here: I32"},
       {Replace(".qzeros", DType::kI32, {2, 48}), ".qzeros", "has shape [2, 48]"},
       {Remove(".qzeros"), ".qzeros", "is missing"},
       {Replace(".scales", DType::kF16, {8, 384}), ".scales", "has shape [8, 384]"},
       {Replace(".scales", DType::kF64, {4, 384}), ".scales",
        "is F64, supported here: F32, BF16, F16"},
       {Remove(".scales"), ".scales", "is missing"},
       {Replace(".weight", DType::kF16, {384, 256}), "", "is none that the configuration asks for"},
       {Put<uint16_t>(".scales", 9, 0x7c00), ".scales", "element 9 is inf"}});
}

TEST_F(QuantisedFaultsTest, OfGptqNameTensorValueAndLimit) {
  ExpectNamed(
      kGptq,
      {{Replace(".qweight", DType::kI32, {31, 384}), ".qweight", "ask for [32, 384]"},
       {Remove(".g_idx"), ".g_idx", "is missing"},
       {Replace(".g_idx", DType::kI32, {255}), ".g_idx", "has shape [255]"},
       {Replace(".g_idx", DType::kI16, {256}), ".g_idx", "is I16, supported here: I32, I64"},
       {Put<int32_t>(".g_idx", 3, 4), ".g_idx", "has group 4 for input 3, allowed are 0 to 3"},
       {Put<int32_t>(".g_idx", 3, -1), ".g_idx", "has group -1 for input 3"},
       {Put<int32_t>(".g_idx", 0, -1), ".g_idx", "for input 1, allowed are 0 to 3"},
       {Replace(".g_idx", DType::kI64, {256}), ".g_idx",
        "has more than 64 inputs in group 0, from input 64 on"}});
}

TEST_F(QuantisedFaultsTest, OfPackedTensorsNameTensorValueAndLimit) {
  ExpectNamed(
      kPack,
      {{Replace(".weight_packed", DType::kI32, {384, 31}), ".weight_packed", "ask for [384, 32]"},
       {Replace(".weight_packed", DType::kI32, {384, 64}), ".weight_packed", "with 4 bits"},
       {Replace(".weight_scale", DType::kBF16, {384, 1}), ".weight_scale", "ask for [384, 4]"},
       {Replace(".weight_zero_point", DType::kI8, {384, 4}), ".weight_zero_point",
        "is I8, supported here: I32"},
       {Replace(".weight_zero_point", DType::kI32, {384, 4}), ".weight_zero_point",
        "ask for [48, 4]"},
       {Put<int32_t>(".weight_shape", 0, 383), ".weight_shape",
        "is [383, 256], the configuration asks for [384, 256]"},
       {Replace(".weight_shape", DType::kI64, {3}), ".weight_shape", "has shape [3]"}});
}

TEST_F(QuantisedFaultsTest, OfIntegerTensorsNameTensorValueAndLimit) {
  ExpectNamed(kInt, {{Replace(".weight", DType::kI8, {384, 128}), ".weight", "ask for [384, 256]"},
                     {Replace(".weight", DType::kF8E4M3, {384, 256}), ".weight",
                      "is F8_E4M3, supported here: I8"},
                     {Replace(".weight_zero_point", DType::kI8, {384, 1}), ".weight_zero_point",
                      "ask for [384, 4]"},
                     {[](StoredTensors& tensors) {
                        StoredTensor& scales = tensors.at(kModule + ".weight_scale");
                        scales = Zeros(DType::kF32, {384, 4});
                        const float huge = 3e38f;
                        std::memcpy(scales.bytes.data() + 4 * 6, &huge, sizeof(huge));
                      },
                      ".weight_scale", "element 6 is 3e+38"},
                     {Replace(".input_scale", DType::kF32, {1}), ".input_scale",
                      "is none that the configuration asks for"}});
}

TEST_F(QuantisedFaultsTest, OfFloat8TensorsNameTensorValueAndLimit) {
  ExpectNamed(
      kFp8,
      {{Replace(".weight", DType::kF8E4M3, {384, 255}), ".weight",
        "has shape [384, 255]; quantization_config, with 8 bits and groups of 128 x 64"},
       {Replace(".weight", DType::kI8, {384, 256}), ".weight", "is I8, supported here: F8_E4M3"},
       {Replace(".weight_scale_inv", DType::kF32, {3, 3}), ".weight_scale_inv", "has shape [3, 3]"},
       {Remove(".weight_scale_inv"), ".weight_scale_inv", "is missing"},
       {[](StoredTensors& tensors) {
          StoredTensor& scales = tensors.at(kModule + ".weight_scale_inv");
          scales = Zeros(DType::kF32, {3, 4});
          const float huge = 1e36f;
          std::memcpy(scales.bytes.data() + 4 * 6, &huge, sizeof(huge));
        },
        ".weight_scale_inv", "element 6 is 1e+36"}});
}

TEST_F(QuantisedWeightsTest, GroupsMustDivideTheInputs) {
  Fill({{Format::kAwq, 4, 64, false, false, false}}, {});
  config_.quantisation[0].group_size = 96;
  EXPECT_THAT(Bind(), IsInvalidArgument("is of 256 inputs, no multiple of the group size 96"));
}

TEST_F(QuantisedWeightsTest, RowsMustHoldBlocks) {
  config_.d_ff = 200;
  Fill({{Format::kIntQuantised, 8, 0, true, false, false}}, {});
  EXPECT_THAT(Bind(), IsInvalidArgument("is of 200 inputs, which no group of 256, 128, 64"));
}

}  // namespace
}  // namespace tlm

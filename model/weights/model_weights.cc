#include "model/weights/model_weights.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/weights/parallel_pieces.h"
#include "model/weights/quantised_matrix.h"

namespace tlm {
namespace {

TensorView* PlaceInLayer(TensorRole role, LayerWeights* layer) {
  switch (role) {
    case TensorRole::kAttnNorm:
      return &layer->attn_norm;
    case TensorRole::kAttnNormBias:
      return &layer->attn_norm_bias;
    case TensorRole::kQkv:
      return &layer->qkv;
    case TensorRole::kQkvBias:
      return &layer->qkv_bias;
    case TensorRole::kQ:
      return &layer->q;
    case TensorRole::kK:
      return &layer->k;
    case TensorRole::kV:
      return &layer->v;
    case TensorRole::kQBias:
      return &layer->q_bias;
    case TensorRole::kKBias:
      return &layer->k_bias;
    case TensorRole::kVBias:
      return &layer->v_bias;
    case TensorRole::kO:
      return &layer->o;
    case TensorRole::kOBias:
      return &layer->o_bias;
    case TensorRole::kQNorm:
      return &layer->q_norm;
    case TensorRole::kKNorm:
      return &layer->k_norm;
    case TensorRole::kFfnNorm:
      return &layer->ffn_norm;
    case TensorRole::kFfnNormBias:
      return &layer->ffn_norm_bias;
    case TensorRole::kGate:
      return &layer->gate;
    case TensorRole::kGateBias:
      return &layer->gate_bias;
    case TensorRole::kUp:
      return &layer->up;
    case TensorRole::kUpBias:
      return &layer->up_bias;
    case TensorRole::kDown:
      return &layer->down;
    case TensorRole::kDownBias:
      return &layer->down_bias;
    default:
      break;
  }
  TLM_CHECK(false);
}

absl::Status CheckTensor(std::string_view name, const TensorView& view, const Shape& expected) {
  if (!(view.shape == expected)) {
    return InvalidArgument("tensor {} has shape {}, the configuration asks for {}", Quoted(name),
                           view.shape.ToString(), expected.ToString());
  }
  if (!IsFloat(view.dtype) && !IsBlockQuantised(view.dtype)) {
    return InvalidArgument("tensor {} is {}, supported are F64, F32, BF16 and F16", Quoted(name),
                           DTypeName(view.dtype));
  }
  return absl::OkStatus();
}

// Returns the name under which the checkpoint stores the tensor `name`, or "" if it has no such
// tensor.
std::string StoredName(const ModelConfig& config, const std::string& name,
                       const Checkpoint& checkpoint) {
  if (checkpoint.Find(name) != nullptr) return name;
  std::string other = OtherTensorName(config.naming, name);
  return !other.empty() && checkpoint.Find(other) != nullptr ? other : "";
}

// Returns a hint for a checkpoint whose names follow another scheme than its configuration says.
std::string NamingHint(const ModelConfig& config, const Checkpoint& checkpoint) {
  constexpr std::pair<TensorNaming, const char*> kNamings[] = {
      {TensorNaming::kCs336, "cs336"},
      {TensorNaming::kQwen3Mha, "qwen3_mha"},
      {TensorNaming::kHuggingFace, "hugging_face"},
      {TensorNaming::kGpt2, "gpt2"}};
  for (const auto& [naming, text] : kNamings) {
    ModelConfig other = config;
    other.naming = naming;
    const std::string name = TensorName(naming, TensorRole::kTokenEmbedding, -1);
    if (naming != config.naming && !StoredName(other, name, checkpoint).empty()) {
      return fmt::format("; the names are those of tensor_naming '{}'", text);
    }
  }
  return "";
}

// Quantised matrices by the names that they would have as floats.
using QuantisedByName = std::map<std::string, QuantisedMatrix>;

absl::StatusOr<QuantisedByName> FindQuantised(const ModelConfig& config,
                                              const std::vector<TensorSpec>& specs,
                                              const Checkpoint& checkpoint) {
  QuantisedByName found;
  if (config.quantisation.empty()) return found;
  for (const TensorSpec& spec : specs) {
    TLM_ASSIGN_OR_RETURN(std::optional<QuantisedMatrix> matrix,
                         FindQuantisedMatrix(config, spec, checkpoint));
    if (matrix.has_value()) found.emplace(spec.name, *std::move(matrix));
  }
  return found;
}

absl::Status CheckNoneMissing(const ModelConfig& config, const std::vector<TensorSpec>& specs,
                              const QuantisedByName& quantised, const Checkpoint& checkpoint) {
  size_t missing = 0;
  std::string first;
  for (const TensorSpec& spec : specs) {
    if (quantised.contains(spec.name)) continue;
    if (!StoredName(config, spec.name, checkpoint).empty()) continue;
    if (missing++ == 0) first = spec.name;
  }
  if (missing == 0) return absl::OkStatus();
  return InvalidArgument("tensor {} is missing ({} of {} are){}", Quoted(first), missing,
                         specs.size(), NamingHint(config, checkpoint));
}

// GPTQ's tools give every quantised module a bias, which is 0 where the model has none.
absl::Status AllowZeroBiases(const QuantisedByName& quantised, const Checkpoint& checkpoint,
                             std::set<std::string>* expected) {
  for (const auto& [weight, matrix] : quantised) {
    const std::string& integers = matrix.names.front();
    const std::string name = integers.substr(0, integers.rfind('.')) + ".bias";
    const TensorView* const bias = checkpoint.Find(name);
    if (bias == nullptr || expected->contains(name)) continue;
    TLM_RETURN_IF_ERROR(CheckTensor(name, *bias, {matrix.view.shape[0]}));
    const std::span<const std::byte> bytes(bias->as<std::byte>(), bias->bytes());
    checkpoint.Populate(bytes);
    if (std::ranges::any_of(bytes, [](std::byte byte) { return byte != std::byte{0}; })) {
      return InvalidArgument("tensor {} is not 0, and the configuration has no such bias",
                             Quoted(name));
    }
    expected->insert(name);
  }
  return absl::OkStatus();
}

absl::Status CheckNoneSurplus(const std::set<std::string>& expected, const Checkpoint& checkpoint) {
  size_t surplus = 0;
  std::string first;
  for (const auto& [name, view] : checkpoint.tensors()) {
    if (expected.contains(name) || IsKnownBuffer(name, view.shape.rank())) continue;
    if (surplus++ == 0) first = name;
  }
  if (surplus == 0) return absl::OkStatus();
  return InvalidArgument("tensor {} is none that the configuration asks for ({} are not)",
                         Quoted(first), surplus);
}

// Compares two tensors of the same type and shape without keeping them in memory.
bool AreEqual(const TensorView& a, const TensorView& b, const Checkpoint& checkpoint) {
  constexpr size_t kPieceBytes = size_t{1} << 20;
  const std::span<const std::byte> left(a.as<std::byte>(), a.bytes());
  const std::span<const std::byte> right(b.as<std::byte>(), b.bytes());
  std::atomic<bool> equal{true};
  const size_t pieces = (left.size() + kPieceBytes - 1) / kPieceBytes;
  ForEachPiece(static_cast<int64_t>(pieces), 0, [&](int64_t piece) {
    if (!equal) return;
    const size_t begin = static_cast<size_t>(piece) * kPieceBytes;
    const size_t size = std::min(kPieceBytes, left.size() - begin);
    for (const auto& part : {left.subspan(begin, size), right.subspan(begin, size)}) {
      checkpoint.Populate(part);
    }
    if (std::memcmp(left.data() + begin, right.data() + begin, size) != 0) equal = false;
    for (const auto& part : {left.subspan(begin, size), right.subspan(begin, size)}) {
      checkpoint.Release(part);
    }
  });
  return equal;
}

// A tied model's checkpoint may repeat the embedding as LM head: harmless if it is a true copy, but
// a sign of a wrong configuration if not.
absl::Status CheckTiedHead(std::string_view name, const TensorView& head,
                           const TensorView& embedding, const Checkpoint& checkpoint) {
  TLM_RETURN_IF_ERROR(CheckTensor(name, head, embedding.shape));
  if (head.dtype == embedding.dtype && AreEqual(head, embedding, checkpoint)) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "tensor {} differs from the token embedding, with which tie_word_embeddings says it is one",
      Quoted(name));
}

absl::StatusOr<ModelWeights> Bind(const ModelConfig& config, const Checkpoint& checkpoint) {
  ModelWeights weights;
  weights.specs = ExpectedTensors(config);
  TLM_ASSIGN_OR_RETURN(const QuantisedByName quantised,
                       FindQuantised(config, weights.specs, checkpoint));
  TLM_RETURN_IF_ERROR(CheckNoneMissing(config, weights.specs, quantised, checkpoint));
  weights.layers.resize(static_cast<size_t>(config.num_layers));
  std::set<std::string> expected;
  for (const TensorSpec& spec : weights.specs) {
    if (const auto found = quantised.find(spec.name); found != quantised.end()) {
      *PlaceOf(spec, &weights) = found->second.view;
      expected.insert(found->second.names.begin(), found->second.names.end());
      continue;
    }
    const std::string name = StoredName(config, spec.name, checkpoint);
    const TensorView& view = *checkpoint.Find(name);
    TLM_RETURN_IF_ERROR(CheckTensor(name, view, spec.shape));
    *PlaceOf(spec, &weights) = view;
    expected.insert(name);
  }
  const std::string head_name = TensorName(config.naming, TensorRole::kLmHead, -1);
  if (config.tie_word_embeddings) {
    weights.lm_head = weights.token_embedding;
    const TensorView* const stored = checkpoint.Find(head_name);
    if (stored != nullptr) {
      TLM_RETURN_IF_ERROR(CheckTiedHead(head_name, *stored, weights.token_embedding, checkpoint));
    }
    expected.insert(head_name);
  }
  TLM_RETURN_IF_ERROR(AllowZeroBiases(quantised, checkpoint, &expected));
  TLM_RETURN_IF_ERROR(CheckNoneSurplus(expected, checkpoint));
  return weights;
}

}  // namespace

TensorView* PlaceOf(const TensorSpec& spec, ModelWeights* weights) {
  switch (spec.role) {
    case TensorRole::kTokenEmbedding:
      return &weights->token_embedding;
    case TensorRole::kPositionEmbedding:
      return &weights->position_embedding;
    case TensorRole::kFinalNorm:
      return &weights->final_norm;
    case TensorRole::kFinalNormBias:
      return &weights->final_norm_bias;
    case TensorRole::kLmHead:
      return &weights->lm_head;
    default:
      return PlaceInLayer(spec.role, &weights->layers[static_cast<size_t>(spec.layer)]);
  }
}

absl::StatusOr<ModelWeights> BindWeights(const ModelConfig& config, const Checkpoint& checkpoint) {
  absl::StatusOr<ModelWeights> weights = Bind(config, checkpoint);
  if (!weights.ok()) return WithContext(weights.status(), checkpoint.path());
  return weights;
}

absl::StatusOr<DType> WeightsDTypeFromName(std::string_view name) {
  if (name == "float32") return DType::kF32;
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16") return DType::kF16;
  return InvalidArgument("is {}, it may be float32, bfloat16 or float16", Quoted(name));
}

}  // namespace tlm

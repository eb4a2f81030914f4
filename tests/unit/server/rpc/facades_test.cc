#include "server/rpc/facades.h"

#include <gtest/gtest.h>

namespace tlm {
namespace {

TEST(FacadesTest, NamesTheMethodsOfCalls) {
  EXPECT_EQ(MethodNamed("Generate"), "tlm.v1.LanguageModel/Generate");
  EXPECT_EQ(MethodNamed("StreamCoreMetrics"),
            "xds.service.orca.v3.OpenRcaService/StreamCoreMetrics");
  EXPECT_EQ(MethodNamed("ModelInfer"), "inference.GRPCInferenceService/ModelInfer");
  EXPECT_EQ(MethodNamed("vllm.Abort"), "vllm.grpc.engine.VllmEngine/Abort");
  EXPECT_EQ(MethodNamed("dynamo.GenerateStream"), "vllm.Inference/GenerateStream");
  EXPECT_EQ(MethodNamed("dynamo.Abort"), "vllm.Control/Abort");
  EXPECT_EQ(MethodNamed("openengine.Generate"), "openengine.v1.Inference/Generate");
  for (const char* const none : {"unknown", "vllm.Nothing", "nothing.Generate", ""}) {
    EXPECT_EQ(MethodNamed(none), "_OTHER") << none;
  }
}

TEST(FacadesTest, ExplainsMethodsOfFacades) {
  EXPECT_EQ(ExplainFacadeMethod("/openengine.v1.Inference/Nothing"),
            "with --facades=openengine the server answers Generate");
  EXPECT_EQ(ExplainFacadeMethod("/tlm.v1.LanguageModel/Nothing"), "");
}

}  // namespace
}  // namespace tlm

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.MetadataUtils;
import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import tlm.v1.GenerateRequest;
import tlm.v1.GenerateResponse;
import tlm.v1.GenerateStarted;
import tlm.v1.LanguageModelGrpc;
import tlm.v1.LanguageModelGrpc.LanguageModelBlockingStub;
import tlm.v1.ResumePoint;
import tlm.v1.TokenInfo;

/**
 * Streams a continuation of a prompt, and continues with another replica when one dies.
 *
 * <pre>java Generate TARGET[,TARGET...] PROMPT [MAX_NEW_TOKENS]</pre>
 *
 * TLM_CA_FILE (PEM) asks for TLS, TLM_API_KEY is sent with every call: with TLS, or to this host.
 */
public final class Generate {
  private static final int TIMEOUT_SECONDS = 60; // for the whole call
  private static final int ROUNDS = 5; // how often all targets are tried before giving up
  private static final int PAUSE_MILLIS = 200; // between rounds
  // The targets that a key may travel to unencrypted.
  private static final String THIS_HOST =
      "(localhost|127(\\.[0-9]+){3}|\\[::1\\])(:[0-9]+)?";

  /** What has been received of one answer, from whichever replicas it came. */
  private static final class Answer {
    private final GenerateRequest.Builder request;
    private final Consumer<String> onText;
    private final List<Integer> ids = new ArrayList<>();
    private GenerateStarted started;

    Answer(GenerateRequest request, Consumer<String> onText) {
      this.request = request.toBuilder();
      this.request.getOutputBuilder().setTokenIds(true);
      this.onText = onText;
    }

    void readFrom(LanguageModelBlockingStub model) {
      Iterator<GenerateResponse> events = model.generate(request.build());
      while (events.hasNext()) {
        GenerateResponse event = events.next();
        if (event.hasStarted() && started == null) {
          started = event.getStarted();
        }
        for (TokenInfo token : event.getTokens().getTokensList()) {
          ids.add(token.getId());
        }
        onText.accept(event.getTokens().getText());
      }
    }

    /** True if another replica may answer the request that one did not. */
    boolean mayGoOnAfter(Status status) {
      String description = String.valueOf(status.getDescription());
      switch (status.getCode()) {
        case UNAVAILABLE: // connection refused or lost, draining
        case CANCELLED: // by the server: this program cancels nothing
          return true;
        case UNKNOWN: // a broken stream
          return description.contains("Stream removed");
        case INTERNAL: // a broken stream
          return description.contains("RST_STREAM");
        case FAILED_PRECONDITION: // in mid-stream: that replica serves another model
          return !ids.isEmpty();
        default:
          return false;
      }
    }

    void resume() {
      if (ids.isEmpty()) {
        return;
      }
      request.getSamplingBuilder().setSeed(started.getEffective().getSeed());
      request.setResume(
          ResumePoint.newBuilder()
              .addAllGeneratedTokenIds(ids)
              .setFingerprint(started.getFingerprint()));
    }
  }

  private static void generate(
      List<LanguageModelBlockingStub> models, GenerateRequest request, Consumer<String> onText)
      throws InterruptedException {
    Answer answer = new Answer(request, onText);
    int attempts = ROUNDS * models.size();
    for (int attempt = 0; ; ++attempt) {
      try {
        answer.readFrom(models.get(attempt % models.size()));
        return;
      } catch (StatusRuntimeException failure) {
        if (attempt == attempts - 1 || !answer.mayGoOnAfter(failure.getStatus())) {
          throw failure;
        }
      }
      answer.resume();
      if ((attempt + 1) % models.size() == 0) {
        Thread.sleep(PAUSE_MILLIS);
      }
    }
  }

  private static void report(StatusRuntimeException failure) throws InvalidProtocolBufferException {
    Status status = failure.getStatus();
    System.err.println(status.getCode() + ": " + status.getDescription());
    for (Any detail : StatusProto.fromThrowable(failure).getDetailsList()) {
      if (detail.is(BadRequest.class)) {
        for (BadRequest.FieldViolation violation :
            detail.unpack(BadRequest.class).getFieldViolationsList()) {
          System.err.println("field " + violation.getField() + ": " + violation.getDescription());
        }
      } else if (detail.is(ErrorInfo.class)) {
        System.err.println("reason " + detail.unpack(ErrorInfo.class).getReason());
      } else if (detail.is(RetryInfo.class)) {
        com.google.protobuf.Duration delay = detail.unpack(RetryInfo.class).getRetryDelay();
        System.err.println("try again in " + (delay.getSeconds() + delay.getNanos() / 1e9) + " s");
      }
    }
  }

  private static ManagedChannel connect(String target) throws IOException {
    String ca = System.getenv("TLM_CA_FILE");
    if (ca == null && System.getenv("TLM_API_KEY") != null && !target.matches(THIS_HOST)) {
      throw Status.FAILED_PRECONDITION
          .withDescription(
              "the API key would travel to " + target + " unencrypted: set TLM_CA_FILE")
          .asRuntimeException();
    }
    ChannelCredentials credentials =
        ca == null
            ? InsecureChannelCredentials.create()
            : TlsChannelCredentials.newBuilder().trustManager(new File(ca)).build();
    return Grpc.newChannelBuilder(target, credentials).build();
  }

  private static Metadata credentials() {
    Metadata metadata = new Metadata();
    String key = System.getenv("TLM_API_KEY");
    if (key != null) {
      metadata.put(
          Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + key);
    }
    return metadata;
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 2 && arguments.length != 3) {
      System.err.println("usage: Generate TARGET[,TARGET...] PROMPT [MAX_NEW_TOKENS]");
      System.exit(2);
    }
    GenerateRequest.Builder request = GenerateRequest.newBuilder().setPrompt(arguments[1]);
    request.getSamplingBuilder().setSeed(1);
    request
        .getStoppingBuilder()
        .setMaxNewTokens(arguments.length == 3 ? Integer.parseInt(arguments[2]) : 60);
    List<ManagedChannel> channels = new ArrayList<>();
    List<LanguageModelBlockingStub> models = new ArrayList<>();
    int exitCode = 0;
    try {
      for (String target : arguments[0].split(",")) {
        ManagedChannel channel = connect(target);
        channels.add(channel);
        models.add(
            LanguageModelGrpc.newBlockingStub(channel)
                .withInterceptors(MetadataUtils.newAttachHeadersInterceptor(credentials()))
                .withDeadlineAfter(TIMEOUT_SECONDS, TimeUnit.SECONDS));
      }
      generate(
          models,
          request.build(),
          text -> {
            System.out.print(text);
            System.out.flush();
          });
      System.out.println();
    } catch (StatusRuntimeException failure) {
      report(failure);
      exitCode = 1;
    }
    channels.forEach(ManagedChannel::shutdownNow);
    System.exit(exitCode);
  }
}

// Streams a continuation of a prompt, and continues with another replica when one dies.
//
//	generate TARGET[,TARGET...] PROMPT [MAX_NEW_TOKENS]
//
// TLM_CA_FILE (PEM) asks for TLS, TLM_API_KEY is sent with every call: with TLS, or to this host.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	tlmv1 "tlm/v1"
)

const (
	timeout = time.Minute            // for the whole call
	rounds  = 5                      // how often all targets are tried before giving up
	pause   = 200 * time.Millisecond // between rounds
)

// thisHost matches the targets that a key may travel to unencrypted.
var thisHost = regexp.MustCompile(`^(localhost|127(\.[0-9]+){3}|\[::1\])(:[0-9]+)?$`)

func connect(target string) (tlmv1.LanguageModelClient, error) {
	security := grpc.WithInsecure()
	if file := os.Getenv("TLM_CA_FILE"); file != "" {
		transport, err := credentials.NewClientTLSFromFile(file, "")
		if err != nil {
			return nil, err
		}
		security = grpc.WithTransportCredentials(transport)
	} else if os.Getenv("TLM_API_KEY") != "" && !thisHost.MatchString(target) {
		return nil, status.Errorf(codes.FailedPrecondition,
			"the API key would travel to %v unencrypted: set TLM_CA_FILE", target)
	}
	connection, err := grpc.Dial(target, security)
	if err != nil {
		return nil, err
	}
	return tlmv1.NewLanguageModelClient(connection), nil
}

// stream is what has been received of one answer, from whichever replicas it came.
type stream struct {
	request *tlmv1.GenerateRequest
	started *tlmv1.GenerateStarted
	ids     []uint32
}

// readFrom takes one replica's events; nil at the end of the answer.
func (s *stream) readFrom(ctx context.Context, model tlmv1.LanguageModelClient, onText func(string)) error {
	events, err := model.Generate(ctx, s.request)
	for err == nil {
		var event *tlmv1.GenerateResponse
		if event, err = events.Recv(); err != nil {
			break
		}
		if s.started == nil {
			s.started = event.GetStarted()
		}
		for _, token := range event.GetTokens().GetTokens() {
			s.ids = append(s.ids, token.Id)
		}
		onText(event.GetTokens().GetText())
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// mayGoOn reports whether another replica may answer the request that one did not.
func (s *stream) mayGoOn(err error) bool {
	failure := status.Convert(err)
	switch failure.Code() {
	case codes.Unavailable: // connection refused or lost, draining
		return true
	case codes.Canceled: // by the server: this program cancels nothing
		return true
	case codes.Unknown: // a broken stream
		return strings.Contains(failure.Message(), "Stream removed")
	case codes.Internal: // a broken stream
		return strings.Contains(failure.Message(), "RST_STREAM")
	case codes.FailedPrecondition: // in mid-stream: that replica serves another model
		return len(s.ids) > 0
	default:
		return false
	}
}

func generate(ctx context.Context, models []tlmv1.LanguageModelClient,
	request *tlmv1.GenerateRequest, onText func(string)) error {
	if request.Output == nil {
		request.Output = &tlmv1.OutputOptions{}
	}
	request.Output.TokenIds = true
	s := &stream{request: request}
	var err error
	for attempt := 0; attempt < rounds*len(models); attempt++ {
		if attempt > 0 && attempt%len(models) == 0 {
			time.Sleep(pause)
		}
		err = s.readFrom(ctx, models[attempt%len(models)], onText)
		if err == nil || !s.mayGoOn(err) {
			return err
		}
		if len(s.ids) > 0 {
			if request.Sampling == nil {
				request.Sampling = &tlmv1.SamplingParams{}
			}
			request.Sampling.Seed = s.started.Effective.Seed
			request.Resume = &tlmv1.ResumePoint{
				GeneratedTokenIds: s.ids, Fingerprint: s.started.Fingerprint}
		}
	}
	return err
}

func report(err error) {
	failure := status.Convert(err)
	fmt.Fprintf(os.Stderr, "%v: %v\n", failure.Code(), failure.Message())
	for _, detail := range failure.Details() {
		switch detail := detail.(type) {
		case *errdetails.BadRequest:
			for _, violation := range detail.FieldViolations {
				fmt.Fprintf(os.Stderr, "field %v: %v\n", violation.Field, violation.Description)
			}
		case *errdetails.ErrorInfo:
			fmt.Fprintln(os.Stderr, "reason", detail.Reason)
		case *errdetails.RetryInfo:
			delay := detail.RetryDelay
			fmt.Fprintln(os.Stderr, "try again in",
				time.Duration(delay.Seconds)*time.Second+time.Duration(delay.Nanos))
		}
	}
}

func run(arguments []string) error {
	maxNewTokens := uint32(60)
	if len(arguments) == 3 {
		number, err := strconv.ParseUint(arguments[2], 10, 32)
		if err != nil {
			return err
		}
		maxNewTokens = uint32(number)
	}
	var models []tlmv1.LanguageModelClient
	for _, target := range strings.Split(arguments[0], ",") {
		model, err := connect(target)
		if err != nil {
			return err
		}
		models = append(models, model)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if key := os.Getenv("TLM_API_KEY"); key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+key)
	}
	seed := uint64(1)
	request := &tlmv1.GenerateRequest{
		Input:    &tlmv1.GenerateRequest_Prompt{Prompt: arguments[1]},
		Sampling: &tlmv1.SamplingParams{Seed: &seed},
		Stopping: &tlmv1.StoppingCriteria{MaxNewTokens: &maxNewTokens},
	}
	if err := generate(ctx, models, request, func(text string) { fmt.Print(text) }); err != nil {
		return err
	}
	fmt.Println()
	return nil
}

func main() {
	if len(os.Args) != 3 && len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: generate TARGET[,TARGET...] PROMPT [MAX_NEW_TOKENS]")
		os.Exit(2)
	}
	if err := run(os.Args[1:]); err != nil {
		report(err)
		os.Exit(1)
	}
}

// Prints the project of a compose file with an environment file, loaded by the library that `docker compose config` is
// made of, as JSON.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	text, err := project(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(text)
}

func project(file, environment string) (string, error) {
	options, err := cli.NewProjectOptions([]string{file}, cli.WithEnvFiles(environment), cli.WithDotEnv)
	if err != nil {
		return "", err
	}
	found, err := options.LoadProject(context.Background())
	if err != nil {
		return "", err
	}
	text, err := found.MarshalJSON()
	return string(text), err
}

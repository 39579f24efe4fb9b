// SPDX-License-Identifier: Apache-2.0
// voxconv completion: scripts with which a shell completes commands and options.
#include <algorithm>
#include <iostream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "voxconv/cli/command.h"
#include "voxconv/cli/session.h"

namespace voxconv::cli {
namespace {

struct Option {
  std::string name;  // with its dashes
  std::string help;  // one line
};

struct CommandOptions {
  const Command* command;
  std::vector<Option> options;
};

// What the command itself says of its options.
absl::StatusOr<std::vector<Option>> OptionsOf(const Command& command) {
  std::ostringstream printed;
  std::streambuf* const output = std::cout.rdbuf(printed.rdbuf());
  const absl::Status status = command.run({kListOptions});
  std::cout.rdbuf(output);
  if (!IsAnswered(status)) return status;
  std::vector<Option> options;
  for (absl::string_view line : absl::StrSplit(printed.str(), '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(line, absl::MaxSplits('\t', 1));
    options.push_back({parts.first, parts.second});
  }
  return options;
}

std::string Names(const std::vector<Option>& options) {
  return absl::StrJoin(options, " ", [](std::string* out, const Option& option) {
    absl::StrAppend(out, option.name);
  });
}

std::string CommandNames() {
  return absl::StrJoin(Commands(), " ", [](std::string* out, const Command& command) {
    absl::StrAppend(out, command.name);
  });
}

void PrintBash(const std::vector<CommandOptions>& all) {
  std::cout << "# bash completion of voxconv, written by `voxconv completion bash`\n"
               "_voxconv() {\n"
               "  local word=${COMP_WORDS[COMP_CWORD]} options=\n"
               "  COMPREPLY=()\n"
               "  if ((COMP_CWORD == 1)) || [[ $COMP_CWORD == 2 && ${COMP_WORDS[1]} == help ]]; "
               "then\n"
               "    COMPREPLY=($(compgen -W '"
            << CommandNames()
            << " help --help --version' -- \"$word\"))\n"
               "    return\n"
               "  fi\n"
               "  [[ $word == -* ]] || return 0  # a file\n"
               "  case ${COMP_WORDS[1]} in\n";
  for (const CommandOptions& entry : all) {
    std::cout << "    " << entry.command->name << ") options='" << Names(entry.options) << "' ;;\n";
  }
  std::cout << "  esac\n"
               "  COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
               "}\n"
               "complete -o default -F _voxconv voxconv\n";
}

// 'NAME:HELP' as _describe takes it, in single quotes.
std::string Described(const std::string& name, const std::string& help) {
  return absl::StrCat("'", name, ":",
                      absl::StrReplaceAll(help, {{"'", "'\\''"}, {":", "\\:"}, {"\\", "\\\\"}}),
                      "'");
}

void PrintZsh(const std::vector<CommandOptions>& all) {
  std::cout << "#compdef voxconv\n"
               "# zsh completion of voxconv, written by `voxconv completion zsh`\n"
               "_voxconv() {\n"
               "  local -a commands options\n"
               "  commands=(\n";
  for (const Command& command : Commands()) {
    std::cout << "    " << Described(command.name, command.summary) << "\n";
  }
  std::cout << "    'help:print the options of a command'\n"
               "  )\n"
               "  if (( CURRENT == 2 )) || [[ $CURRENT == 3 && $words[2] == help ]]; then\n"
               "    _describe command commands\n"
               "    return\n"
               "  fi\n"
               "  case $words[2] in\n";
  for (const CommandOptions& entry : all) {
    std::cout << "    " << entry.command->name << ") options=(\n";
    for (const Option& option : entry.options) {
      std::cout << "      " << Described(option.name, option.help) << "\n";
    }
    std::cout << "    ) ;;\n";
  }
  std::cout << "  esac\n"
               "  if [[ $words[CURRENT] == -* ]]; then\n"
               "    _describe -o option options\n"
               "  else\n"
               "    _files\n"
               "  fi\n"
               "}\n"
               "if [[ $funcstack[1] == _voxconv ]]; then _voxconv \"$@\"; else compdef _voxconv "
               "voxconv; fi\n";
}

}  // namespace

absl::Status RunCompletion(const std::vector<std::string>& args) {
  po::options_description options("Completion");
  options.add_options()("shell", po::value<std::string>(), "bash or zsh");
  po::positional_options_description positional;
  positional.add("shell", 1);
  VOXCONV_ASSIGN_OR_RETURN(const po::variables_map values,
                           ParseArguments("completion SHELL", options, positional, args));
  const std::string shell = values.count("shell") == 0 ? "" : values["shell"].as<std::string>();
  if (shell != "bash" && shell != "zsh") {
    return absl::InvalidArgumentError(
        absl::StrCat("SHELL '", shell, "': allowed are bash and zsh"));
  }
  std::vector<CommandOptions> all;
  for (const Command& command : Commands()) {
    VOXCONV_ASSIGN_OR_RETURN(std::vector<Option> of_command, OptionsOf(command));
    all.push_back({&command, std::move(of_command)});
  }
  (shell == "bash" ? PrintBash : PrintZsh)(all);
  return absl::OkStatus();
}

}  // namespace voxconv::cli

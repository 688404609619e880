//! Reads lines of examples as a shell would, as far as examples go: words, quotes, continued lines, `&&`, `|`, `>`.

/// All calls of `vazao` in the lines, as words. Behind two spaces or `#` stands what is said about a line.
pub(super) fn commands(lines: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut whole = String::new();
    for line in lines {
        let line = line.trim().trim_start_matches("$ ");
        if let Some(begun) = line.strip_suffix('\\') {
            whole += begun;
            continue;
        }
        whole += line;
        found.extend(simple_commands(&whole).into_iter().filter_map(of_vazao));
        whole.clear();
    }
    found
}

/// The words from `vazao` on, where that is what runs.
fn of_vazao(words: Vec<String>) -> Option<Vec<String>> {
    let is_before = |word: &str| word == "sudo" || (word.contains('=') && !word.starts_with('-'));
    let words: Vec<String> = words.into_iter().skip_while(|word| is_before(word)).collect();
    words.first().is_some_and(|word| word == "vazao").then_some(words)
}

fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut letters = line.chars().peekable();
    let mut is_redirected = false;
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => {
                let quoted: String = letters.by_ref().take_while(|next| *next != letter).collect();
                word.get_or_insert_default().push_str(&quoted);
            }
            ' ' | '&' | '|' | ';' | '>' | '<' => {
                let ended = word.take().filter(|_| !std::mem::take(&mut is_redirected) || letter != ' ');
                commands.last_mut().into_iter().for_each(|words| words.extend(ended.clone()));
                match letter {
                    ' ' if letters.peek() == Some(&' ') => break,
                    ' ' if letters.peek() == Some(&'#') => break,
                    ' ' => {}
                    '>' | '<' => is_redirected = true,
                    _ => commands.push(Vec::new()),
                }
            }
            letter => word.get_or_insert_default().push(letter),
        }
    }
    let ended = word.filter(|_| !is_redirected);
    commands.last_mut().into_iter().for_each(|words| words.extend(ended.clone()));
    commands.retain(|words| !words.is_empty());
    commands
}

#[test]
fn lines_are_read_as_a_shell_reads_them() {
    let read = |lines: &[&str]| {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        commands(&lines).iter().map(|words| words.join(",")).collect::<Vec<_>>()
    };
    assert_eq!(read(&["$ mkdir /m && A=b vazao mount vz:/ /m  # text"]), ["vazao,mount,vz:/,/m"]);
    assert_eq!(read(&["vazao ls -U vz:/x | wc -l", "echo vazao"]), ["vazao,ls,-U,vz:/x"]);
    assert_eq!(read(&["vazao top -n 10 > rates", "vazao top >> x &"]), ["vazao,top,-n,10", "vazao,top"]);
    assert_eq!(read(&["vazao cp 'a b' \\", "  vz:/    copies"]), ["vazao,cp,a b,vz:/"]);
    assert_eq!(read(&["vazao status --check || mail -s 'vazao down' root"]), ["vazao,status,--check"]);
}

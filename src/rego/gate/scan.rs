//! What must be known of a module before it is parsed: the parser's time doubles with every nested bracket, grows
//! with the square of the imports, and long runs of operators overflow its stack or that of what comes after it.
//! So this reads the text by a small lexer of its own and counts.

use std::iter::Peekable;
use std::str::CharIndices;

use crate::rego::error::{Error, Location, Result};
use crate::rego::limits::Limits;
use crate::rego::rule::Module;

/// More imports than anyone writes; a thousand take the parser seconds.
const MOST_IMPORTS: u32 = 100;

/// Checks one module. `work` is what the modules before it left of [`Limits::parse_work`].
pub(super) fn scan(module: &Module, limits: &Limits, work: &mut u64) -> Result<()> {
    let mut counts = Counts { module, limits, groups: vec![Group::default()], imports: 0, importing: false };
    for (token, line, column) in Tokens::of(&module.text) {
        let at = || Location { file: module.path.clone(), line, column };
        match token {
            Token::Open => {
                let depth = counts.open(at)?;
                *work = work
                    .checked_sub(1_u64.checked_shl(depth).unwrap_or(u64::MAX))
                    .ok_or_else(|| Error::TooMuchNesting { file: module.path.clone() })?;
            }
            Token::Paren => counts.groups.push(Group::default()),
            Token::Close => counts.close(at)?,
            Token::Operator => counts.operator(at)?,
            Token::Separator => counts.group(Group::end_chain),
            Token::Text => counts.group(Group::term),
            Token::Word(text) => counts.word(text, at)?,
        }
    }
    Ok(())
}

/// What is counted while reading.
struct Counts<'a> {
    module: &'a Module,
    limits: &'a Limits,
    groups: Vec<Group>,
    imports: u32,
    importing: bool,
}

/// One bracketed group, or the module itself.
#[derive(Default)]
struct Group {
    /// Whether it counts as nesting (`[`, `{`) or not (`(`).
    nests: bool,
    /// Operators since the expression at hand began, with those of the groups inside it.
    chain: u32,
    /// The longest chain so far.
    longest: u32,
    /// Whether the last token ended a term: another one then begins a new statement.
    after_term: bool,
}

impl Group {
    fn end_chain(&mut self) {
        self.longest = self.longest.max(self.chain);
        self.chain = 0;
        self.after_term = false;
    }

    fn term(&mut self) {
        if self.after_term {
            self.end_chain();
        }
        self.after_term = true;
    }
}

impl Counts<'_> {
    fn group(&mut self, with: impl FnOnce(&mut Group)) {
        if let Some(group) = self.groups.last_mut() {
            with(group);
        }
    }

    fn open(&mut self, at: impl Fn() -> Location) -> Result<u32> {
        self.groups.push(Group { nests: true, ..Group::default() });
        let depth = u32::try_from(self.groups.iter().filter(|group| group.nests).count()).unwrap_or(u32::MAX);
        if depth > self.limits.nesting {
            return Err(Error::TooDeep { at: at(), depth, limit: self.limits.nesting });
        }
        Ok(depth)
    }

    fn close(&mut self, at: impl Fn() -> Location) -> Result<()> {
        // A closing bracket too many is the parser's to complain about.
        if self.groups.len() < 2 {
            return Ok(());
        }
        let Some(mut inner) = self.groups.pop() else { return Ok(()) };
        inner.end_chain();
        if let Some(outer) = self.groups.last_mut() {
            outer.after_term = true;
            outer.chain = outer.chain.saturating_add(inner.longest);
            if outer.chain > self.limits.chain {
                return Err(Error::TooLong { at: at(), limit: self.limits.chain });
            }
        }
        Ok(())
    }

    fn operator(&mut self, at: impl Fn() -> Location) -> Result<()> {
        let limit = self.limits.chain;
        let Some(group) = self.groups.last_mut() else { return Ok(()) };
        group.after_term = false;
        group.chain = group.chain.saturating_add(1);
        if group.chain > limit { Err(Error::TooLong { at: at(), limit }) } else { Ok(()) }
    }

    fn word(&mut self, word: &str, at: impl Fn() -> Location) -> Result<()> {
        if word == "in" {
            return self.operator(at);
        }
        self.group(Group::term);
        if self.importing && word.starts_with("rego.") && word != "rego.v1" {
            return Err(Error::Version { at: at(), found: word.trim_start_matches("rego.").to_owned() });
        }
        self.importing = word == "import";
        if self.importing {
            self.imports = self.imports.saturating_add(1);
            if self.imports > MOST_IMPORTS {
                return Err(Error::TooMany { file: self.module.path.clone(), what: "imports", limit: MOST_IMPORTS });
            }
        }
        Ok(())
    }
}

enum Token<'a> {
    /// `[` or `{`.
    Open,
    /// `(`.
    Paren,
    /// `]`, `}` or `)`.
    Close,
    /// One character of an operator.
    Operator,
    /// `,` or `;`.
    Separator,
    /// A string.
    Text,
    /// A name with its dots, a number or a keyword.
    Word(&'a str),
}

/// Tokens with line and column, from 1. Comments and blanks are left out.
struct Tokens<'a> {
    text: &'a str,
    chars: Peekable<CharIndices<'a>>,
    line: u32,
    /// Where the line begins.
    start: usize,
}

impl<'a> Tokens<'a> {
    fn of(text: &'a str) -> Self {
        Self { text, chars: text.char_indices().peekable(), line: 1, start: 0 }
    }

    fn next_char(&mut self) -> Option<(usize, char)> {
        let (index, c) = self.chars.next()?;
        if c == '\n' {
            self.line = self.line.saturating_add(1);
            self.start = index.saturating_add(1);
        }
        Some((index, c))
    }

    fn skip_while(&mut self, matches: impl Fn(char) -> bool) -> usize {
        while let Some((index, c)) = self.chars.peek().copied() {
            if !matches(c) {
                return index;
            }
            self.next_char();
        }
        self.text.len()
    }

    /// To the end of a string, or of the line that a quoted one must end on.
    fn skip_string(&mut self, quote: char) {
        while let Some((_, c)) = self.next_char() {
            match c {
                '\\' if quote == '"' => {
                    self.next_char();
                }
                '\n' if quote == '"' => return,
                c if c == quote => return,
                _ => {}
            }
        }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = (Token<'a>, u32, u32);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (index, c) = self.next_char()?;
            let line = self.line;
            let column = u32::try_from(index.saturating_sub(self.start)).unwrap_or(u32::MAX).saturating_add(1);
            let token = match c {
                '[' | '{' => Token::Open,
                '(' => Token::Paren,
                ']' | '}' | ')' => Token::Close,
                ',' | ';' => Token::Separator,
                '"' | '`' => {
                    self.skip_string(c);
                    Token::Text
                }
                '#' => {
                    self.skip_while(|c| c != '\n');
                    continue;
                }
                c if c.is_alphanumeric() || c == '_' => {
                    let end = self.skip_while(|c| c.is_alphanumeric() || c == '_' || c == '.');
                    Token::Word(self.text.get(index..end).unwrap_or_default())
                }
                c if c.is_whitespace() => continue,
                '.' => continue,
                _ => Token::Operator,
            };
            return Some((token, line, column));
        }
    }
}

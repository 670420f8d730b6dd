//! Right answers counted: per skill, and over all.

use super::prompts::Prompt;

/// How many of a skill's prompts were answered rightly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Score {
    pub skill: String,
    pub right: usize,
    pub asked: usize,
}

impl Score {
    pub fn percent(&self) -> f64 {
        100.0 * self.right as f64 / self.asked.max(1) as f64
    }
}

/// A score per skill, in the order of the prompts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scores {
    pub skills: Vec<Score>,
}

impl Scores {
    /// Scores of answers, in the order of their prompts.
    pub fn of(prompts: &[Prompt], answers: &[String]) -> Self {
        let mut scores = Self::default();
        for (prompt, answer) in prompts.iter().zip(answers) {
            scores.count(&prompt.skill, prompt.expect.passes(answer));
        }
        scores
    }

    fn count(&mut self, skill: &str, right: bool) {
        let found = self.skills.iter().position(|score| score.skill == skill);
        let index = found.unwrap_or_else(|| {
            self.skills.push(Score {
                skill: skill.to_owned(),
                right: 0,
                asked: 0,
            });
            self.skills.len() - 1
        });
        if let Some(score) = self.skills.get_mut(index) {
            score.asked += 1;
            score.right += usize::from(right);
        }
    }

    pub fn overall(&self) -> Score {
        Score {
            skill: "overall".to_owned(),
            right: self.skills.iter().map(|score| score.right).sum(),
            asked: self.skills.iter().map(|score| score.asked).sum(),
        }
    }

    /// Scores below the required ones, as sentences.
    pub fn shortfalls(&self, required: Required) -> Vec<String> {
        let overall = self.overall();
        let pairs = std::iter::once((&overall, required.overall))
            .chain(self.skills.iter().map(|score| (score, required.each)));
        pairs
            .filter(|(score, wanted)| score.percent() < *wanted)
            .map(|(score, wanted)| {
                format!(
                    "{} scored {:.1} %, below the required {wanted} %",
                    score.skill,
                    score.percent()
                )
            })
            .collect()
    }
}

/// The least percentages: over all prompts, and of each skill.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Required {
    pub overall: f64,
    pub each: f64,
}

impl std::str::FromStr for Required {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = || format!("must be OVERALL:EACH in percent, such as 95:85, found {text:?}");
        let (overall, each) = text.split_once(':').ok_or_else(wanted)?;
        let percent = |part: &str| match part.parse() {
            Ok(value) if (0.0..=100.0).contains(&value) => Ok(value),
            _ => Err(wanted()),
        };
        Ok(Self {
            overall: percent(overall)?,
            each: percent(each)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(answers: &[(&str, bool)]) -> Scores {
        let mut scores = Scores::default();
        for (skill, right) in answers {
            scores.count(skill, *right);
        }
        scores
    }

    #[test]
    fn skills_keep_their_order_and_add_up() {
        let scores = scores(&[("sums", true), ("names", false), ("sums", true)]);
        assert_eq!(scores.skills[0].skill, "sums");
        assert_eq!((scores.skills[0].right, scores.skills[0].asked), (2, 2));
        assert_eq!((scores.overall().right, scores.overall().asked), (2, 3));
    }

    #[test]
    fn what_falls_short_is_named() {
        let scores = scores(&[("sums", true), ("names", false)]);
        let required: Required = "50:40".parse().unwrap();
        assert_eq!(
            scores.shortfalls(required),
            ["names scored 0.0 %, below the required 40 %"]
        );
        assert!(scores.shortfalls("50:0".parse().unwrap()).is_empty());
    }

    #[test]
    fn requirements_are_two_percentages() {
        for bad in ["95", "95:", "a:b", "101:0", "-1:0", "nan:0"] {
            assert!(bad.parse::<Required>().is_err(), "{bad}");
        }
    }
}

//! Results of jobs that are sent as values.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{SpeechPart, TokenList, Transcript, Vector};

/// The values of a job: all of them, or a part of a transcript or of a speech.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultPart {
    Tokens(TokenList),
    Text(String),
    Vectors(Vec<Vector>),
    Scores(Vec<f32>),
    Transcript(Box<Transcript>),
    Speech(Box<SpeechPart>),
    /// The answer to a form: its value by the name of the form.
    Form(Map<String, Value>),
}

impl ResultPart {
    /// About as many bytes as it takes in memory.
    pub fn weight(&self) -> usize {
        match self {
            Self::Tokens(tokens) => {
                let strings = tokens.strings.iter().flatten();
                4 * tokens.ids.len() + strings.map(|text| 24 + text.len()).sum::<usize>()
            }
            Self::Text(text) => text.len(),
            Self::Vectors(vectors) => vectors.iter().map(|vector| 24 + 4 * vector.0.len()).sum(),
            Self::Scores(scores) => 4 * scores.len(),
            Self::Transcript(transcript) => transcript.weight(),
            Self::Speech(part) => part.samples.0.len() + 24,
            Self::Form(answer) => {
                let values = answer.iter();
                values
                    .map(|(name, value)| name.len() + value.to_string().len())
                    .sum()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ResultPart, Vector};

    #[test]
    fn a_vector_crosses_the_wire_bit_for_bit() {
        let vectors = vec![
            Vector(vec![0.1, -2.5, f32::MIN_POSITIVE]),
            Vector::default(),
        ];
        let part = ResultPart::Vectors(vectors);
        let text = serde_json::to_string(&part).unwrap();
        assert_eq!(serde_json::from_str::<ResultPart>(&text).unwrap(), part);
        let one = serde_json::to_value(Vector(vec![1.0])).unwrap();
        assert_eq!(one, json!("0000803f"));
    }
}
